"""The charges for which the store is always asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from flask_bucket import Charge, Decision, Limit, MemoryStore, StoreUnavailable
from flask_bucket.stores.outage import OutageStore
from flask_bucket.stores.refusals import RefusalStore
from tests.refusals.conftest import SECOND, Counting, World, charge


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


def test_the_one_token_that_returned_during_a_refusal_is_told(world: World) -> None:
    limit = Limit.parse("10/second")
    world.take(charge(limit, cost=10))
    assert world.take(charge(limit, cost=2)).remaining == 0
    world.wait(0.1)
    refused = world.take(charge(limit, cost=2))
    assert (refused.cached, refused.remaining) == (True, 1)


def test_a_settlement_that_failed_is_seen_at_once_all_the_same(world: World) -> None:
    class LosesAnswers(Counting):
        def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
            super().settle(charges, now)
            raise StoreUnavailable("the answer was lost")

    cached = world.cache(LosesAnswers(lambda: world.now))
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

    def clock() -> float:
        return world.now / SECOND

    guarded = OutageStore(fickle, "local", recovery_interval=0.01, clock=clock)
    cached = RefusalStore(guarded, 10, clock)
    cached.take([charge()])
    refused = cached.take([charge()])
    assert (refused.allowed, refused.degraded) == (False, True)
    assert refused.outcomes
    away = False
    world.now += SECOND // 100  # the store is tried again, and a remembered refusal would last
    assert cached.take([charge()])


def test_errors_of_the_store_pass_through(world: World) -> None:
    class Broken(MemoryStore):
        def take(self, *arguments: Any) -> Decision:
            raise StoreUnavailable("away")

    with pytest.raises(StoreUnavailable):
        RefusalStore(Broken(), 10).take([charge()])
