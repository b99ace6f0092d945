"""Random histories: every store agrees with bucket.py, step by step and bit for bit.

The machine applies each step to the reference, and tells it to every store. After each step it
compares the answers, the stored states and the TTLs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from flask_bucket import bucket
from flask_bucket.bucket import Kept, State
from flask_bucket.decisions import Charge, Decision
from flask_bucket.keys import KeyParts
from flask_bucket.limits import EXACT, Limit
from tests.conftest import START
from tests.property import engines
from tests.property.engines import NAMES, Subject, milliseconds
from tests.property.profiles import examples
from tests.property.worlds import (
    AMOUNTS,
    AWKWARD,
    COSTS,
    FEW,
    LASTS,
    MOVES,
    Near,
    Wait,
    limits,
    moved,
)
from tests.servers import Server

ALICE, ALSO_ALICE, BOB = "bucket:{alice}:a:x", "bucket:{alice}:b:x", "bucket:{bob}:a:x"
#: Buckets of other kinds.
BAN, ALSO_BAN = "bucket:{alice}:a:!x", "bucket:{alice}:b:!x"
SLOTS, ALSO_SLOTS = "bucket:{alice}:a:@x", "bucket:{bob}:a:@x"
KEYS = (ALICE, ALSO_ALICE, BOB, BAN, ALSO_BAN, SLOTS, ALSO_SLOTS)

#: By how many milliseconds a server's clock, read in whole ones, may differ from ours.
CLOCKS_APART = 5

#: Most charges meet in one bucket, and the same key may come twice in a call.
keys = st.sampled_from((ALICE, ALICE, ALICE, ALSO_ALICE, BOB))


def charges(at_most: int = 3) -> st.SearchStrategy[list[tuple[str, int | Near]]]:
    return st.lists(st.tuples(keys, COSTS), max_size=at_most)


@dataclass(frozen=True)
class Asked:
    """A charge of any kind, before the machine makes one for its limits and times."""

    key: str
    cost: int | Near
    more: int | None
    rest: int
    member: str
    bans: tuple[str, ...]
    noted: str


#: Of most calls, one or two charges are rates that bans count.
kinds = st.lists(
    st.builds(
        Asked,
        st.one_of(keys, st.sampled_from(KEYS)),
        COSTS,
        st.one_of(st.none(), st.integers(-1, 30), st.just(EXACT - 1)),
        st.sampled_from((0, 0, 1, 3, EXACT - 1)),
        st.sampled_from(("one", "one", "two", "three or four")),
        st.sampled_from(((BAN,), (BAN, ALSO_BAN), ())),
        st.sampled_from(("", "1/hour")),
    ),
    max_size=3,
)


@dataclass(frozen=True)
class Written:
    """The TTL that was last written under a key, and the time from which it runs."""

    ttl: int
    at: int


class Machine(RuleBasedStateMachine):
    def __init__(self, subjects: Sequence[Subject]) -> None:
        super().__init__()
        self.subjects = subjects
        self.now = START
        self.waits_until = START
        self.limits: dict[str, Limit] = dict.fromkeys(KEYS, AWKWARD[0])
        self.limits[BAN] = self.limits[SLOTS] = FEW
        self.lasts: dict[str, int] = dict.fromkeys(KEYS, 60_000_000)
        self.states: dict[str, Kept] = {}
        self.written: dict[tuple[str, str], Written] = {}
        self.begun = time.time()
        for subject in subjects:
            subject.forget()

    @rule(which=st.sampled_from(KEYS), limit=limits())
    def change_a_limit(self, which: str, limit: Limit) -> None:
        self.limits[which] = limit

    @rule(which=st.sampled_from((BAN, BAN, ALSO_BAN, SLOTS, ALSO_SLOTS)), lasts=LASTS)
    def change_how_long_it_lasts(self, which: str, lasts: int) -> None:
        self.lasts[which] = lasts

    @rule(by=MOVES, asked=charges())
    def take(self, by: int | Wait, asked: list[tuple[str, int | Near]]) -> None:
        self._take(by, asked, [], [])

    @rule(by=MOVES, asked=charges(), held=charges(2), shadow=charges(2))
    def take_with_held_and_shadow(
        self,
        by: int | Wait,
        asked: list[tuple[str, int | Near]],
        held: list[tuple[str, int | Near]],
        shadow: list[tuple[str, int | Near]],
    ) -> None:
        self._take(by, asked, held, shadow)

    @rule(by=MOVES, asked=charges(2), key=keys, limit=limits(), held=charges(1))
    def take_with_two_limits_on_one_key(
        self,
        by: int | Wait,
        asked: list[tuple[str, int | Near]],
        key: str,
        limit: Limit,
        held: list[tuple[str, int | Near]],
    ) -> None:
        """Nobody should do this. All stores must still decide it in the same way."""
        self._move(by)
        odd = [*self._charges(asked), Charge(limit, key, 1)]
        self._decide(odd, self._charges(held), [])

    @rule(by=MOVES, asked=kinds, held=kinds, shadow=kinds)
    def take_of_any_kind(
        self, by: int | Wait, asked: list[Asked], held: list[Asked], shadow: list[Asked]
    ) -> None:
        self._move(by)
        self._decide(self._of_kinds(asked), self._of_kinds(held), self._of_kinds(shadow))

    @rule(by=MOVES, asked=kinds)
    def peek_of_any_kind(self, by: int | Wait, asked: list[Asked]) -> None:
        self._move(by)
        self._peek(self._of_kinds(asked))

    @rule(by=MOVES, asked=kinds, gives_back=st.booleans())
    def settle_of_any_kind(self, by: int | Wait, asked: list[Asked], gives_back: bool) -> None:
        self._move(by)
        settled = self._of_kinds(asked)
        self._settle([charge.given_back() for charge in settled] if gives_back else settled)

    @rule(by=MOVES, asked=charges())
    def peek(self, by: int | Wait, asked: list[tuple[str, int | Near]]) -> None:
        self._move(by)
        self._peek(self._charges(asked))

    def _peek(self, looked: Sequence[Charge]) -> None:
        expected, _ = bucket.take(self.states, looked, self.now)
        for subject in self.subjects:
            self._same(subject, subject.store.peek(looked, self.now), expected, looked)
        self._check({}, ())

    @rule(by=MOVES, asked=st.lists(st.tuples(keys, AMOUNTS), max_size=3))
    def settle(self, by: int | Wait, asked: list[tuple[str, int | Near]]) -> None:
        self._move(by)
        self._settle(self._charges(asked))

    def _settle(self, settled: Sequence[Charge]) -> None:
        writes = bucket.settle(self.states, settled, self.now)
        before = milliseconds()
        for subject in self.subjects:
            subject.store.settle(settled, self.now)
        self._check(writes, settled, before)

    @rule(client=st.sampled_from(("alice", "bob", "carol", "carol")))
    def reset(self, client: str) -> None:
        gone = [key for key in self.states if f"{{{client}}}" in key]
        for subject in self.subjects:
            count = subject.store.reset(client)
            assert count == len(gone) or self._expired(), subject.name
        for key in gone:
            del self.states[key]
        self._check({}, ())

    def _take(
        self,
        by: int | Wait,
        asked: list[tuple[str, int | Near]],
        held: list[tuple[str, int | Near]],
        shadow: list[tuple[str, int | Near]],
    ) -> None:
        self._move(by)
        self._decide(self._charges(asked), self._charges(held), self._charges(shadow))

    def _decide(
        self, asked: Sequence[Charge], held: Sequence[Charge], shadow: Sequence[Charge]
    ) -> None:
        expected, writes = bucket.take(self.states, asked, self.now, held=held, shadow=shadow)
        before = milliseconds()
        for subject in self.subjects:
            answer = subject.store.take(asked, held, shadow, self.now)
            self._same(subject, answer, expected, (*asked, *shadow))
        if not expected.allowed:
            self.waits_until = self.now + round((expected.retry_after or 0) * 1_000_000)
        self._check(writes, (*asked, *shadow, *held), before)

    def _move(self, by: int | Wait) -> None:
        if isinstance(by, Wait):
            by = self.waits_until - self.now + by.off_by
        self.now = moved(self.now, by)

    def _charges(self, asked: Sequence[tuple[str, int | Near]]) -> list[Charge]:
        return [
            Charge(self.limits[key], key, cost if isinstance(cost, int) else self._near(key, cost))
            for key, cost in asked
        ]

    def _of_kinds(self, asked: Sequence[Asked]) -> list[Charge]:
        found = []
        for one in asked:
            limit, lasts, kind = self.limits[one.key], self.lasts[one.key], KeyParts.of(one.key)
            assert kind is not None
            if kind.kind == "rate":
                cost = one.cost if isinstance(one.cost, int) else self._near(one.key, one.cost)
                up_to = None if one.more is None else min(cost + one.more, EXACT - 1)
                rest = 0 if up_to is None else one.rest
                made = Charge(
                    limit,
                    one.key,
                    cost,
                    up_to=up_to,
                    rest=rest,
                    counts_for=one.bans,
                    noted=one.noted,
                )
            elif kind.kind == "ban":
                made = Charge(limit, one.key, kind="ban", lasts=lasts)
            else:
                made = Charge(
                    limit, one.key, kind="slot", member=one.member, lasts=lasts, counts_for=one.bans
                )
            found.append(made)
        return found

    def _near(self, key: str, near: Near) -> int:
        limit = self.limits[key]
        kept = self.states.get(key)
        state, _ = bucket.refresh(limit, kept if isinstance(kept, State) else None, self.now)
        return min(near.cost(limit, max(0, state.tokens) // limit.scale), EXACT - 1)

    def _expired(self) -> bool:
        """Return whether the machine stalled for so long that servers may have dropped buckets.

        They drop a full bucket by their own clock, at least a minute after it was written.
        """
        return time.time() - self.begun > 30

    def _same(
        self, subject: Subject, answer: Decision, expected: Decision, asked: Sequence[Charge]
    ) -> None:
        if self._expired():
            return
        # A call about nothing is not sent anywhere, so no clock was read.
        times = {expected.now} if asked else {expected.now, 0}
        assert answer.now in times, subject.name
        assert (answer.allowed, answer.outcomes, answer.retry_after) == (
            expected.allowed,
            expected.outcomes,
            expected.retry_after,
        ), subject.name

    def _check(
        self, writes: Mapping[str, Kept], charged: Sequence[Charge], before: int = 0
    ) -> None:
        self.states.update(writes)
        self.states = {key: kept for key, kept in self.states.items() if kept}
        if self._expired():
            return
        ttls = {
            c.key: bucket.ttl(c.limit, kept, self.now)
            for c in charged
            if (kept := writes.get(c.key))
            and (not isinstance(kept, State) or kept.scale == c.limit.scale)
        }
        for subject in self.subjects:
            for key, ttl in ttls.items():
                self.written[subject.name, key] = Written(ttl, before)
            states, left = subject.kept_for(KEYS)
            assert states == self.states, subject.name
            assert left.keys() == self.states.keys(), subject.name
            for key, ms in left.items():
                written = self.written[subject.name, key]
                assert ms is not None, f"{subject.name} keeps {key} for ever"
                # fakeredis keeps its times in floating point, and rounds thousands of years.
                blur = ms // 10**14 if subject.name == "fakeredis" else 0
                elapsed = milliseconds() - written.at
                assert written.ttl - elapsed - blur - CLOCKS_APART <= ms, (subject.name, key)
                assert ms <= written.ttl + blur, (subject.name, key)


def test_every_store_agrees_with_the_reference(subjects: list[Subject]) -> None:
    class OnTheseStores(Machine):
        def __init__(self) -> None:
            super().__init__(subjects)

    run_state_machine_as_test(OnTheseStores, settings=examples(100, 2_000))


@pytest.mark.parametrize("name", NAMES)
def test_this_store_takes_part(name: str, servers: dict[str, Server]) -> None:
    made = engines.subject(name, servers)
    made.store.take([Charge(AWKWARD[0], ALICE)], now=START)
    assert made.kept(KEYS).keys() == {ALICE}
    engines.close(made)
