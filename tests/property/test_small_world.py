"""Every history up to length 5 over a small alphabet: the script against the reference.

A letter is one call: how far time moves, the kind of call, its limit and its costs. A call depends
on nothing but the stored states, as seen from the time of the call. So histories that lead to the
same states are equal from there on. It is enough to set up each state that a history of up to four
letters leads to, once, and to try every letter on it. That covers every step of every history of
up to five letters.

The state machine never sets states, so it would notice a store that remembers anything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from flask_bucket import bucket
from flask_bucket.bucket import State
from flask_bucket.decisions import Charge, Decision
from flask_bucket.limits import Limit
from tests.conftest import START
from tests.property.engines import Subject
from tests.property.profiles import is_long

KEYS = ("bucket:{a}:one:x", "bucket:{a}:two:x")

#: They differ in scale and capacity: a letter may find buckets that the other limit left.
LIMITS = (Limit(capacity=2, refill_rate=1), Limit(capacity=1, refill_rate=7, per=3))

#: Nothing; a token; more; full again; and back: twice is just the tolerance, thrice is beyond.
MOVES = (0, 1_000_000, 1_500_000, 40_000_000, -500_000)

#: Costs of the first and the second bucket. None leaves a bucket out of the call.
COSTS: tuple[tuple[int | None, int | None], ...] = (
    *((1, None), (2, None), (None, 1), (None, 2)),
    *((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2)),
)


@dataclass(frozen=True)
class Letter:
    move: int
    kind: str
    limit: Limit
    costs: tuple[int | None, int | None]

    def charges(self) -> list[Charge]:
        pairs = zip(KEYS, self.costs, strict=True)
        return [Charge(self.limit, key, cost) for key, cost in pairs if cost is not None]


def alphabet() -> Iterator[Letter]:
    for move, limit in product(MOVES, LIMITS):
        for costs in COSTS:
            yield Letter(move, "take", limit, costs)
        yield Letter(move, "settle", limit, (1, 2))
        # The first bucket's tokens are held, and given back if the second one refuses.
        yield Letter(move, "held", limit, (1, 1))
        yield Letter(move, "shadow", limit, (1, 1))


#: The state of each bucket, with times relative to now.
World = tuple[State | None, ...]


def seen_from(now: int, states: Mapping[str, State]) -> World:
    found = (states.get(key) for key in KEYS)
    return tuple(s and State(s.tokens, s.last_refill - now, s.scale) for s in found)


def brought_up(world: World, now: int) -> dict[str, State]:
    return {
        key: State(s.tokens, s.last_refill + now, s.scale)
        for key, s in zip(KEYS, world, strict=True)
        if s is not None
    }


def by_the_reference(
    letter: Letter, states: Mapping[str, State], now: int
) -> tuple[Decision | None, dict[str, Any]]:
    charges = letter.charges()
    if letter.kind == "settle":
        return None, {**states, **bucket.settle(states, charges, now)}
    first, rest = charges[:1], charges[1:]
    if letter.kind == "held":
        decision, writes = bucket.take(states, rest, now, held=first)
    elif letter.kind == "shadow":
        decision, writes = bucket.take(states, first, now, shadow=rest)
    else:
        decision, writes = bucket.take(states, charges, now)
    return decision, {**states, **writes}


def by_the_store(letter: Letter, subject: Subject, now: int) -> Decision | None:
    charges = letter.charges()
    if letter.kind == "settle":
        subject.store.settle(charges, now)
        return None
    first, rest = charges[:1], charges[1:]
    if letter.kind == "held":
        return subject.store.take(rest, held=first, now=now)
    if letter.kind == "shadow":
        return subject.store.take(first, shadow=rest, now=now)
    return subject.store.take(charges, now=now)


def test_every_short_history_goes_as_the_reference_says(subject: Subject) -> None:
    letters = [*alphabet()]
    known: set[World] = {(None, None)}
    frontier = [*known]
    stored: dict[str, State] = {}
    checked = 0
    for _length in range(5 if is_long() else 3):
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
            checked += 1
            reached = seen_from(now, after)
            if reached not in known:
                known.add(reached)
                found.append(reached)
        frontier = found
    print(f"{subject.name}: {checked:,} calls on {len(known):,} states")  # noqa: T201
