"""The refusal cache: invisible but for its speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flask_bucket import Charge, Decision, Limit, MemoryStore, StoreUnavailable
from flask_bucket.stores.refusals import LONGEST, RefusalStore

SECOND = 1_000_000
HOURLY = Limit.parse("1/hour")


class Counting(MemoryStore):
    """An in-process store that counts what it is asked."""

    def __init__(self, clock: Any) -> None:
        super().__init__(clock)
        self.takes = self.settles = 0

    def take(self, *arguments: Any) -> Decision:
        self.takes += 1
        return super().take(*arguments)

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        self.settles += 1
        super().settle(charges, now)


class World:
    """A store behind a refusal cache, on one clock that is moved by hand."""

    def __init__(self, entries: int = 100) -> None:
        self.now = 1_000_000 * SECOND
        self.store = Counting(lambda: self.now)
        self.cached = RefusalStore(self.store, entries, lambda: self.now / SECOND)

    def take(self, *charges: Charge, held: Sequence[Charge] = ()) -> Decision:
        return self.cached.take(charges, held)

    def wait(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)


def charge(
    limit: Limit = HOURLY, key: str = "bucket:{c}:s:n", cost: int = 1, **more: Any
) -> Charge:
    return Charge(limit, key, cost, **more)


@pytest.fixture
def world() -> World:
    return World()


def test_a_refusal_is_repeated_without_asking_the_store(world: World) -> None:
    world.take(charge())
    first = world.take(charge())
    again = [world.take(charge()) for _ in range(100)]
    assert world.store.takes == 2
    assert not first.cached
    assert all(not decision and decision.cached for decision in again)


def test_a_flood_asks_the_store_once_a_second(world: World) -> None:
    for _ in range(1_000):
        world.take(charge())
        world.wait(0.01)
    assert 10 <= world.store.takes <= 12


def test_it_ends_with_the_wait(world: World) -> None:
    limit = Limit.parse("5/second burst 1")
    world.take(charge(limit))
    assert not world.take(charge(limit))
    world.wait(0.199999)
    assert not world.take(charge(limit))
    world.wait(0.000001)
    assert world.take(charge(limit))


@pytest.mark.parametrize("cost", [4, 6])
def test_another_cost_is_asked_about(world: World, cost: int) -> None:
    limit = Limit.parse("10/hour")
    world.take(charge(limit, cost=7))
    world.take(charge(limit, cost=5))
    takes = world.store.takes
    world.take(charge(limit, cost=cost))
    assert world.store.takes == takes + 1


def test_what_can_never_be_afforded_is_remembered_as_such(world: World) -> None:
    world.take(charge(cost=2))
    decision = world.take(charge(cost=2))
    assert decision.cached
    assert decision.retry_after is None


def test_a_changed_limit_is_asked_about(world: World) -> None:
    world.take(charge())
    world.take(charge())
    takes = world.store.takes
    world.take(charge(Limit.parse("2/hour")))
    assert world.store.takes == takes + 1


def test_tokens_given_back_here_are_seen_at_once(world: World) -> None:
    world.take(charge())
    world.take(charge())
    world.cached.settle([charge(cost=-1)])
    assert world.take(charge())


def test_a_reset_here_is_seen_at_once(world: World) -> None:
    world.take(charge())
    world.take(charge())
    assert world.cached.reset("c") == 1
    assert world.take(charge())


def test_tokens_given_back_elsewhere_are_seen_within_a_second(world: World) -> None:
    world.take(charge())
    world.take(charge())
    world.store.settle([charge(cost=-1)])  # another process's
    assert not world.take(charge())
    world.wait(LONGEST)
    assert world.take(charge())


def test_a_give_back_during_the_call_is_not_overtaken_by_its_refusal(world: World) -> None:
    world.take(charge())

    class GivesBackMeanwhile(Counting):
        def take(self, *arguments: Any) -> Decision:
            decision = super().take(*arguments)
            cached.settle([charge(cost=-1)])
            return decision

    world.store = GivesBackMeanwhile(lambda: world.now)
    world.store.settle([charge(cost=1)])
    cached = RefusalStore(world.store, 10, lambda: world.now / SECOND)
    assert not cached.take([charge()])
    assert cached.take([charge()])


def test_limits_whose_tokens_return_are_always_asked_about(world: World) -> None:
    for _ in range(3):
        world.take(charge(returns=True))
    assert world.store.takes == 3


def test_held_charges_are_given_back_even_so(world: World) -> None:
    held = charge(Limit.parse("10/hour"), "bucket:{c}:@application:per-hour")
    world.take(charge())
    world.take(charge())
    world.take(held)
    assert world.take(charge(), held=[held]).cached
    assert world.store.peek([charge(held.limit, held.key, 10)])


def test_a_refusal_after_other_charges_is_remembered_too(world: World) -> None:
    held = charge(Limit.parse("10/hour"), "bucket:{c}:@application:per-hour")
    world.take(charge())
    world.take(held)
    assert not world.take(charge(), held=[held]).cached
    assert world.take(charge()).cached


def test_the_sum_of_two_charges_says_nothing_of_one(world: World) -> None:
    assert not world.take(charge(), charge())
    assert world.take(charge())


def test_no_more_are_remembered_than_asked_for() -> None:
    world = World(entries=2)
    for key in ("a", "b", "c"):
        world.take(charge(key=key))
        world.take(charge(key=key))
    takes = world.store.takes
    assert world.take(charge(key="c")).cached
    assert not world.take(charge(key="a")).cached
    assert world.store.takes == takes + 1


def test_a_time_passed_in_is_asked_about(world: World) -> None:
    world.take(charge())
    for _ in range(2):
        world.cached.take([charge()], now=world.now)
    assert world.store.takes == 3


def test_an_outage_is_nothing_to_remember(world: World) -> None:
    class Away(MemoryStore):
        def take(self, *arguments: Any) -> Decision:
            return Decision(False, degraded=True, retry_after=1.0)

    cached = RefusalStore(Away(), 10)
    assert not cached.take([charge()]).cached
    assert not cached.take([charge()]).cached


def test_errors_of_the_store_pass_through(world: World) -> None:
    class Broken(MemoryStore):
        def take(self, *arguments: Any) -> Decision:
            raise StoreUnavailable("away")

    with pytest.raises(StoreUnavailable):
        RefusalStore(Broken(), 10).take([charge()])


LIMITS = st.sampled_from(
    [Limit.parse("2/hour"), Limit.parse("5/second burst 3"), Limit.parse("1.9/s burst 2")]
)
ASKED = st.builds(
    Charge, LIMITS, st.sampled_from(["bucket:{c}:a:n", "bucket:{c}:b:n"]), st.integers(0, 4)
)
STEP = st.one_of(
    st.tuples(st.just("take"), st.lists(ASKED, min_size=1, max_size=3)),
    st.tuples(st.just("give back"), ASKED),
    st.tuples(st.just("reset"), st.none()),
    st.tuples(st.just("wait"), st.sampled_from([1, 1_000, 100_000, 199_999, 500_000, 2_000_000])),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEP, min_size=5, max_size=40))
def test_its_verdicts_are_those_of_the_store_alone(steps: list[tuple[str, Any]]) -> None:
    world = World()
    alone = MemoryStore(lambda: world.now)
    for what, argument in steps:
        if what == "take":
            mine, theirs = world.take(*argument), alone.take(argument)
            assert mine.allowed == theirs.allowed
            if mine.cached and len(argument) == 1:
                (told,), (true,) = mine.outcomes, theirs.outcomes
                assert told.remaining == true.remaining
                if told.retry_after is None or true.retry_after is None:
                    assert told.retry_after == true.retry_after
                else:  # rather a tick late than early
                    assert -1e-9 <= told.retry_after - true.retry_after <= 1.1e-6
        elif what == "give back":
            given = [Charge(argument.limit, argument.key, -argument.cost)]
            world.cached.settle(given)
            alone.settle(given)
        elif what == "reset":
            world.cached.reset("c")
            alone.reset("c")
        else:
            world.now += argument
