"""The numbers that a repeated refusal tells."""

from __future__ import annotations

import pytest

from flask_bucket import Decision, Limit, MemoryStore
from flask_bucket.stores.refusals import RefusalStore
from tests.refusals.conftest import SECOND, World, charge


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


@pytest.mark.parametrize("cost", [1, 2])
def test_a_refusal_tells_a_wait_even_in_the_last_part_of_a_microsecond(cost: int) -> None:
    clock, limit = [0.0], Limit(cost + 1, 5)
    cached = RefusalStore(MemoryStore(lambda: 0), 10, lambda: clock[0])
    cached.take([charge(limit, cost=cost + 1)])
    cached.take([charge(limit, cost=cost)])
    clock[0] = 0.2 * cost - 1e-7
    refused = cached.take([charge(limit, cost=cost)])
    assert refused.cached
    assert (refused.retry_after, refused.outcomes[0].remaining) == (1e-6, cost - 1)


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
