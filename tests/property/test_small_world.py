"""Every history up to length 5 over a small alphabet: the script against the reference.

A letter is one call: how far time moves, the kind of call, its limit and its costs. A call depends
on nothing but the stored states, as seen from the time of the call. So histories that lead to the
same states are equal from there on. It is enough to set up each state that a history of up to four
letters leads to, once, and to try every letter on it. That covers every step of every history of
up to five letters.

The calls about rates are held against a bucket in exact rationals too, where there is one: it knows
no changed limits, and no time that goes back.

The state machine never sets states, so it would notice a store that remembers anything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from flask_bucket import bucket
from flask_bucket.bucket import Kept, State
from flask_bucket.decisions import Charge, Decision
from flask_bucket.limits import Limit
from tests.conftest import START
from tests.property.clients import heard, oracle_of
from tests.property.engines import Subject
from tests.property.oracle import Answer, Asked, Oracle, ask
from tests.property.profiles import is_long

ONE, TWO = "bucket:{a}:one:x", "bucket:{a}:two:x"
BAN, SLOTS = "bucket:{a}:one:!x", "bucket:{a}:one:@x"
KEYS = (ONE, TWO, BAN, SLOTS)


@dataclass(frozen=True)
class Letter:
    """A call, and how far time moves before it."""

    move: int
    mode: str
    charges: tuple[Charge, ...] = ()
    held: tuple[Charge, ...] = ()
    shadow: tuple[Charge, ...] = ()


# Rates: two buckets, and two limits that differ in scale and capacity. A letter may find buckets
# that the other limit left.

LIMITS = (Limit(capacity=2, refill_rate=1), Limit(capacity=1, refill_rate=7, per=3))

#: Nothing; a token; more; full again; and back: twice is just the tolerance, thrice is beyond.
MOVES = (0, 1_000_000, 1_500_000, 40_000_000, -500_000)

#: Costs of the first and the second bucket. None leaves a bucket out of the call.
COSTS: tuple[tuple[int | None, int | None], ...] = (
    *((1, None), (2, None), (None, 1), (None, 2)),
    *((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2)),
)


def rates() -> Iterator[Letter]:
    for move, limit in product(MOVES, LIMITS):
        one, two = Charge(limit, ONE), Charge(limit, TWO)
        for costs in COSTS:
            pairs = zip((ONE, TWO), costs, strict=True)
            charges = [Charge(limit, key, cost) for key, cost in pairs if cost is not None]
            yield Letter(move, "take", (*charges,))
        yield Letter(move, "settle", (one, Charge(limit, TWO, 2)))
        # The first bucket's tokens are held, and given back if the second one refuses.
        yield Letter(move, "take", (two,), held=(one,))
        yield Letter(move, "take", (one,), shadow=(two,))


# All kinds: a rate, a ban of its refusals, and slots.

RATE = Limit(capacity=2, refill_rate=1)
#: It counts in milliseconds.
REFUSALS = Limit(capacity=2, refill_rate=10_007, per=30 * 86_400).in_ticks_of(1_000)

#: Nothing; less than one of the ban's ticks; just the time that a slot is held; just that of the
#: ban; and back.
KIND_MOVES = (0, 499, 1_000_000, 1_500_000, -600_000)


def kinds() -> Iterator[Letter]:
    counted = Charge(RATE, ONE, counts_for=(BAN,))
    ban = Charge(REFUSALS, BAN, kind="ban", lasts=1_500_000)
    slot = Charge(Limit(2, 1), SLOTS, kind="slot", member="a", lasts=1_000_000)
    other, third = replace(slot, member="b"), replace(slot, member="c")
    ahead = replace(counted, up_to=2)
    calls = (
        *(Letter(0, "take", (replace(counted, cost=cost), ban)) for cost in (0, 1, 2, 3)),
        Letter(0, "take", (replace(counted, cost=3),), held=(ban,)),
        Letter(0, "take", (replace(counted, cost=3), ban, ban)),
        Letter(0, "take", (), shadow=(replace(counted, cost=3), ban)),
        Letter(0, "take", (ban,), shadow=(replace(counted, cost=3),)),
        Letter(0, "take", (ahead, ban)),
        Letter(0, "take", (replace(ahead, cost=0, rest=1),)),
        Letter(0, "take", (replace(ahead, cost=2, up_to=1, rest=1), other)),
        Letter(0, "take", (slot,)),
        Letter(0, "take", (other, third)),
        Letter(0, "take", (replace(other, counts_for=(BAN,)), ban, counted)),
        Letter(0, "take", (replace(counted, cost=3), ban), held=(slot,)),
        Letter(0, "take", (), shadow=(slot, replace(other, counts_for=(BAN,)), ban)),
        Letter(0, "peek", (replace(ahead, cost=0), ban, slot)),
        Letter(0, "settle", (slot.given_back(), other.given_back())),
        Letter(0, "settle", (Charge(RATE, ONE, 3), ban)),
    )
    for move, call in product(KIND_MOVES, calls):
        yield replace(call, move=move)


#: The contents of a bucket or of slots, with times relative to now.
Seen = State | frozenset[tuple[str, int]] | None
World = tuple[Seen, ...]


def seen_from(now: int, states: Mapping[str, Kept]) -> World:
    def seen(kept: Kept | None) -> Seen:
        if kept is None:
            return None
        if isinstance(kept, State):
            return State(kept.tokens, kept.last_refill - now, kept.scale)
        return frozenset((who, free - now) for who, free in kept.items())

    return tuple(seen(states.get(key)) for key in KEYS)


def brought_up(world: World, now: int) -> dict[str, Kept]:
    return {
        key: State(seen.tokens, seen.last_refill + now, seen.scale)
        if isinstance(seen, State)
        else {who: free + now for who, free in seen}
        for key, seen in zip(KEYS, world, strict=True)
        if seen is not None
    }


def by_the_reference(
    letter: Letter, states: Mapping[str, Kept], now: int
) -> tuple[Decision | None, dict[str, Any]]:
    decision: Decision | None = None
    writes: Mapping[str, Kept]
    if letter.mode == "settle":
        writes = bucket.settle(states, letter.charges, now)
    else:
        decision, writes = bucket.take(
            states, letter.charges, now, held=letter.held, shadow=letter.shadow
        )
        writes = {} if letter.mode == "peek" else writes
    # Slots that nobody holds are not kept.
    return decision, {key: kept for key, kept in {**states, **writes}.items() if kept}


def by_the_store(letter: Letter, subject: Subject, now: int) -> Decision | None:
    if letter.mode == "settle":
        subject.store.settle(letter.charges, now)
        return None
    if letter.mode == "peek":
        return subject.store.peek(letter.charges, now)
    return subject.store.take(letter.charges, letter.held, letter.shadow, now)


def has_oracle(letter: Letter, before: Mapping[str, Kept], now: int) -> bool:
    charges = (*letter.charges, *letter.held, *letter.shadow)
    return letter.mode != "peek" and all(
        charge.kind == "rate"
        and charge.up_to is None
        and (
            (state := before.get(charge.key)) is None
            or (
                isinstance(state, State)
                and state.scale == charge.limit.scale
                and state.last_refill <= now
            )
        )
        for charge in charges
    )


def check_with_rationals(
    letter: Letter, before: Mapping[str, Kept], now: int, answer: Decision | None, after: Any
) -> None:
    """Compare an answer and what is stored then with buckets in exact rationals."""
    oracles: dict[str, Oracle] = {}

    def asked(charges: Sequence[Charge]) -> list[Asked]:
        return [(oracles[charge.key], charge.cost) for charge in charges]

    for charge in (*letter.charges, *letter.held, *letter.shadow):
        oracles[charge.key] = oracle = oracle_of(charge.limit, now)
        state = before.get(charge.key)
        if isinstance(state, State):
            oracle.level, oracle.at = Fraction(state.tokens, state.scale), state.last_refill
            oracle.move(now)
    told: list[Answer] = []
    if answer is None:
        for oracle, cost in asked(letter.charges):
            oracle.level -= cost
    else:
        allowed, told = ask(asked(letter.charges), asked(letter.held), asked(letter.shadow))
        assert (answer.allowed, [*map(heard, answer.outcomes)]) == (allowed, told)
    for charge in (*letter.charges, *letter.held, *letter.shadow):
        kept, _ = bucket.refresh(charge.limit, after.get(charge.key), now)
        assert Fraction(kept.tokens, kept.scale) == oracles[charge.key].level


@pytest.mark.parametrize(("alphabet", "lengths"), [(rates, (2, 5)), (kinds, (2, 4))])
def test_every_short_history_goes_as_the_reference_says(
    subject: Subject, alphabet: Any, lengths: tuple[int, int]
) -> None:
    letters = [*alphabet()]
    known: set[World] = {(None,) * len(KEYS)}
    frontier = [*known]
    stored: dict[str, Kept] = {}
    checked = rational = 0
    for _length in range(lengths[is_long()]):
        found: list[World] = []
        for world, letter in product(frontier, letters):
            before = brought_up(world, START)
            now = START + letter.move
            answer, after = by_the_reference(letter, before, now)
            if stored != before:
                subject.put(before, KEYS)
            assert by_the_store(letter, subject, now) == answer, (before, letter)
            stored = subject.kept(KEYS)
            assert stored == after, (before, letter)
            if has_oracle(letter, before, now):
                check_with_rationals(letter, before, now, answer, after)
                rational += 1
            checked += 1
            reached = seen_from(now, after)
            if reached not in known:
                known.add(reached)
                found.append(reached)
        frontier = found
    print(  # noqa: T201
        f"{subject.name}, {alphabet.__name__}: {len(letters)} letters, {checked:,} calls on "
        f"{len(known):,} states, {rational:,} of them by exact rationals too"
    )
