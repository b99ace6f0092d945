"""Which refusals are repeated, and for how long."""

from __future__ import annotations

import pytest

from flask_bucket import Limit
from flask_bucket.stores.refusals import LONGEST
from tests.refusals.conftest import World, charge


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
