"""The refusal cache: only its speed shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flask_bucket import Charge, Decision, Limit, MemoryStore, StoreUnavailable
from flask_bucket.stores.breaker import Breaker
from flask_bucket.stores.outage import OutageStore
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
    """A store wrapped in a refusal cache, on one clock that is moved by hand."""

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


def test_a_repeated_refusal_tells_all_that_the_store_told(world: World) -> None:
    world.take(charge())
    first = world.take(charge())
    assert world.take(charge()).outcomes == first.outcomes


def test_an_equal_limit_is_the_same_limit(world: World) -> None:
    world.take(charge())
    world.take(charge())
    assert world.take(charge(Limit.parse("1/hour"))).cached


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


def test_a_reset_concerns_the_client_and_the_prefix_that_are_named(world: World) -> None:
    for key in ("bucket:{c}:s:n", "bucket:{d}:s:n", "other:{c}:s:n"):
        world.take(charge(key=key))
    assert world.cached.reset("c", "bucket") == 1
    assert world.cached.reset(key_prefix="bucket") == 1
    assert world.cached.reset() == 1


def test_tokens_given_back_elsewhere_are_seen_within_a_second(world: World) -> None:
    world.take(charge())
    world.take(charge())
    world.store.settle([charge(cost=-1)])  # another process's
    assert not world.take(charge())
    world.wait(LONGEST)
    assert world.take(charge())


class Meanwhile(Counting):
    """A store that is refusing a call while another thread does something, once."""

    def __init__(self, world: World) -> None:
        super().__init__(lambda: world.now)
        self.act: Callable[[], object] | None = None

    def take(self, *arguments: Any) -> Decision:
        decision = super().take(*arguments)
        if not decision and self.act is not None:
            act, self.act = self.act, None
            act()
        return decision


OTHER = Charge(HOURLY, "bucket:{c}:other:n")
NEVER = Charge(HOURLY, "bucket:{c}:never:n", 2)


@pytest.mark.parametrize(
    "act",
    [
        lambda cached: cached.settle([charge(cost=-1)]),
        lambda cached: cached.reset("c"),
        lambda cached: cached.take([NEVER], held=[charge()]),
        lambda cached: cached.take([replace(NEVER, cost=3)], held=[charge()]),
    ],
    ids=["given back", "reset", "held by a remembered refusal", "held by a refused request"],
)
def test_a_refusal_does_not_outlive_tokens_that_return_during_its_call(
    world: World, act: Callable[[RefusalStore], object]
) -> None:
    store = Meanwhile(world)
    cached = RefusalStore(store, 10, lambda: world.now / SECOND)
    cached.take([NEVER])
    act(cached)  # however often tokens returned before
    store.settle([charge()])
    cached.take([NEVER])
    store.act = lambda: act(cached)
    assert not cached.take([charge()])
    assert cached.take([charge()])


def test_a_refusal_is_remembered_although_another_thread_is_allowed_meanwhile(
    world: World,
) -> None:
    store = Meanwhile(world)
    cached = RefusalStore(store, 10, lambda: world.now / SECOND)
    cached.take([charge()])
    cached.take([OTHER])
    cached.take([OTHER])
    store.act = lambda: cached.take([charge(key="bucket:{c}:third:n")])
    assert not cached.take([charge()])
    assert cached.take([charge()]).cached


class Slow(Counting):
    """A store whose calls take time: before it decides, and after."""

    def __init__(self, world: World, before: float, after: float) -> None:
        super().__init__(lambda: world.now)
        self._world, self._before, self._after = world, before, after

    def take(self, *arguments: Any) -> Decision:
        self._world.wait(self._before)
        decision = super().take(*arguments)
        self._world.wait(self._after)
        return decision


@pytest.mark.parametrize(("before", "after"), [(0.1, 0), (0, 0.1), (0.1, 0.1)])
def test_the_time_of_the_call_prolongs_no_refusal(
    world: World, before: float, after: float
) -> None:
    limit = Limit.parse("2/second burst 1")
    slow = Slow(world, before, after)
    cached = RefusalStore(slow, 10, lambda: world.now / SECOND)
    slow.settle([charge(limit)])
    refused = cached.take([charge(limit)])
    assert refused.retry_after is not None
    world.now = refused.now + round(refused.retry_after * SECOND)
    assert cached.take([charge(limit)])


@pytest.mark.parametrize(("before", "after"), [(0.1, 0), (0, 0.1), (0.1, 0.1)])
def test_the_time_of_the_call_tells_nobody_too_short_a_wait(
    world: World, before: float, after: float
) -> None:
    limit = Limit.parse("2/second burst 1")
    slow = Slow(world, before, after)
    cached = RefusalStore(slow, 10, lambda: world.now / SECOND)
    slow.settle([charge(limit)])
    cached.take([charge(limit)])
    repeated = cached.take([charge(limit)])
    assert repeated.cached
    assert repeated.retry_after is not None
    world.wait(repeated.retry_after)
    assert slow.peek([charge(limit)])


def test_the_time_at_which_the_bucket_is_full_does_not_move(world: World) -> None:
    limit = Limit.parse("7 per 13 seconds")
    world.take(charge(limit, cost=7))
    world.wait(0.123456)
    first = world.take(charge(limit, cost=7))
    for _ in range(9):
        world.wait(0.0876543)
        again = world.take(charge(limit, cost=7))
        assert again.cached
        assert again.outcomes[0].reset_after < first.outcomes[0].reset_after
        assert full_at(again) == pytest.approx(full_at(first), abs=1e-6)


def full_at(decision: Decision) -> float:
    """Return the Unix time that a header tells, before it is rounded."""
    return decision.now / SECOND + decision.outcomes[0].reset_after


def test_a_refusal_never_tells_enough_tokens_for_its_cost(world: World) -> None:
    limit = Limit.parse("5/second burst 1")
    world.take(charge(limit))
    world.take(charge(limit))
    for _ in range(4):
        world.wait(0.049999)
        refused = world.take(charge(limit))
        assert refused.cached
        assert refused.outcomes[0].remaining == 0
    world.now += 3  # the last microsecond
    refused = world.take(charge(limit))
    assert refused.cached
    assert (refused.retry_after, refused.outcomes[0].remaining) == (1e-6, 0)


def test_a_refusal_tells_a_wait_even_in_the_last_part_of_a_microsecond() -> None:
    clock, limit = [0.0], Limit.parse("5/second burst 2")
    cached = RefusalStore(MemoryStore(lambda: 0), 10, lambda: clock[0])
    cached.take([charge(limit, cost=2)])
    cached.take([charge(limit)])
    clock[0] = 0.1999999
    refused = cached.take([charge(limit)])
    assert refused.cached
    assert (refused.retry_after, refused.outcomes[0].remaining) == (1e-6, 0)


@pytest.mark.parametrize(
    ("text", "tokens"), [("3/second burst 10000000000", 2), ("9999991/day burst 900000000", 115)]
)
def test_a_repeated_refusal_tells_the_tokens_of_each_tick_since(
    world: World, text: str, tokens: int
) -> None:
    """Ticks of a millisecond and of a second."""
    limit = Limit.parse(text)
    assert limit.tick > 1
    all_of_it = charge(limit, cost=limit.capacity)
    world.take(all_of_it)
    world.wait(0.2)
    assert world.take(all_of_it).outcomes[0].remaining == 0
    world.wait(0.8)
    again = world.take(all_of_it)
    assert again.cached
    assert again.outcomes[0].remaining == tokens


def test_a_refusal_for_want_of_a_slot_is_asked_about(world: World) -> None:
    limit = Limit(1, 1)
    one, other = (
        charge(limit, "bucket:{c}:s:@n", kind="slot", member=who, lasts=SECOND) for who in "ab"
    )
    assert world.take(one)
    assert not world.take(other)
    world.store.settle([one.given_back()])  # by another process
    assert world.take(other)


def test_tokens_that_return_during_a_refusal_are_told(world: World) -> None:
    limit = Limit.parse("10/second")
    world.take(charge(limit, cost=10))
    world.take(charge(limit, cost=9))
    for remaining in range(1, 9):
        world.wait(0.1)
        refused = world.take(charge(limit, cost=9))
        assert refused.cached
        assert refused.outcomes[0].remaining == remaining
        assert type(refused.outcomes[0].remaining) is int


def test_a_settlement_that_failed_is_seen_at_once_all_the_same(world: World) -> None:
    class LosesAnswers(Counting):
        def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
            super().settle(charges, now)
            raise StoreUnavailable("the answer was lost")

    cached = RefusalStore(LosesAnswers(lambda: world.now), 10, lambda: world.now / SECOND)
    cached.take([charge()])
    cached.take([charge()])
    with pytest.raises(StoreUnavailable):
        cached.settle([charge(cost=-1)])
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


def test_a_time_that_is_passed_in_is_asked_about(world: World) -> None:
    later = world.now + 3600 * SECOND
    world.take(charge())
    world.take(charge())
    assert world.cached.take([charge()], now=later)
    assert not world.cached.take([charge()], now=later)
    world.cached.settle([charge()], now=later)
    assert world.store.peek([charge()], now=later).outcomes[0].reset_after == 2 * 3600


def test_dry_run_charges_reach_the_store(world: World) -> None:
    decision = world.cached.take([], shadow=[charge()])
    assert decision.outcomes[0].shadow
    assert not world.store.peek([charge()])
    both = world.cached.take([charge()], shadow=[charge(key="bucket:{c}:dry:n")])
    assert [outcome.shadow for outcome in both.outcomes] == [False, True]
    assert world.take(charge()).cached


def test_a_refusal_by_the_local_policy_ends_with_the_outage(world: World) -> None:
    away = True

    class Fickle(Counting):
        def take(self, *arguments: Any) -> Decision:
            if away:
                raise StoreUnavailable("away")
            return super().take(*arguments)

    fickle = Fickle(lambda: world.now)
    guarded = OutageStore(fickle, "local", clock=lambda: world.now / SECOND)
    cached = RefusalStore(guarded, 10, lambda: world.now / SECOND)
    cached.take([charge()])
    refused = cached.take([charge()])
    assert (refused.allowed, refused.degraded) == (False, True)
    assert refused.outcomes
    away = False
    guarded.breaker = Breaker(1)  # the store is known to be well again
    assert cached.take([charge()])


def test_errors_of_the_store_pass_through(world: World) -> None:
    class Broken(MemoryStore):
        def take(self, *arguments: Any) -> Decision:
            raise StoreUnavailable("away")

    with pytest.raises(StoreUnavailable):
        RefusalStore(Broken(), 10).take([charge()])


LIMITS = (
    Limit.parse("2/hour"),
    Limit.parse("5/second burst 3"),
    Limit.parse("1.9/s burst 2"),
    Limit.parse("3/second burst 10000000000"),  # in ticks of 1 ms
    Limit.parse("9999991/day burst 900000000"),  # in ticks of 1 s
)


@st.composite
def charges(draw: st.DrawFn) -> Charge:
    limit = draw(st.sampled_from(LIMITS))
    most = st.integers(limit.capacity - 3, limit.capacity + 1)
    cost = draw(most if limit.tick > 1 else st.integers(0, 4))
    return Charge(limit, draw(st.sampled_from(["bucket:{c}:a:n", "bucket:{c}:b:n"])), cost)


ASKED = charges()
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
                # An answer does not tell parts of a token: rather a tick late than early.
                (earlier,) = alone.peek(argument, world.now - told.limit.tick).outcomes
                assert earlier.remaining <= told.remaining <= true.remaining
                if told.retry_after is None or true.retry_after is None:
                    assert told.retry_after == true.retry_after
                else:
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


def ban(**more: Any) -> Charge:
    return Charge(Limit.parse("9/hour"), "bucket:{c}:s:!ban", 0, kind="ban", lasts=SECOND, **more)


@pytest.mark.parametrize("place", ["charges", "held", "shadow"])
def test_as_long_as_a_ban_may_count_each_refusal_is_asked_for(world: World, place: str) -> None:
    asked = replace(charge(), counts_for=(ban().key,))
    world.take(asked)
    for _ in range(3):
        charges = [asked, ban()] if place == "charges" else [asked]
        held, shadow = [ban()] * (place == "held"), [ban()] * (place == "shadow")
        assert not world.cached.take(charges, held, shadow)
    assert world.store.takes == 4


def test_of_a_ban_that_has_begun_the_end_is_remembered(world: World) -> None:
    asked = replace(charge(), counts_for=(ban().key,))
    one = replace(ban(), limit=Limit.parse("1/hour"), lasts=10 * SECOND)
    world.take(asked, one)
    first = world.take(asked, one)
    world.wait(0.5)
    second = world.take(asked, one)
    assert (first.cached, second.cached) == (False, True)
    told = {outcome.kind: outcome for outcome in second.outcomes}["ban"]
    assert (told.retry_after, told.reset_after, told.remaining) == (9.5, 9.5, 0)
    world.wait(0.5)
    assert not world.take(asked, one).cached  # within a second, a reset elsewhere is seen


def test_a_refusal_from_the_cache_gives_back_no_ban(world: World) -> None:
    world.take(charge(key="bucket:{c}:s:other"))
    world.take(charge(key="bucket:{c}:s:other"))
    one = replace(ban(), limit=Limit.parse("1/hour"))
    asked = replace(charge(), counts_for=(one.key,))
    world.take(asked, one)
    world.take(asked, one)
    assert world.take(one, held=[replace(ban(), key="bucket:{c}:t:!ban")]).cached
    assert world.store.settles == 0
