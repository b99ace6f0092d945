"""Looks, settlements and the tokens that remain."""

from __future__ import annotations

import pytest

from tests.leases.conftest import LEASE, World, hot


def test_remaining_counts_the_bucket_and_what_is_held(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    told = [world.take(hot()).outcomes[0] for _ in range(20)]
    assert [outcome.remaining for outcome in told] == list(range(799, 779, -1))
    assert told[0].reset_after == pytest.approx(0.001)
    assert told[-1].reset_after == pytest.approx(0.020)


def test_a_look_adds_what_is_held(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    (outcome,) = world.workers[0].peek([hot(0)]).outcomes
    assert outcome.remaining == 799
    assert world.workers[0].peek([hot(799)]).allowed
    assert not world.workers[0].peek([hot(800)]).allowed
    assert world.workers[1].peek([hot(0)]).outcomes[0].remaining == 779


def test_a_settlement_goes_to_the_store(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    world.workers[0].settle([hot(7), hot(-2)])
    assert [charge.cost for charge in world.store.settled] == [7, -2]
    assert world.workers[0].peek([hot(0)]).outcomes[0].remaining == 799 - 5


def test_tokens_that_return_end_a_remembered_refusal(world: World) -> None:
    world.take(hot(800))
    assert not world.take(hot())
    world.workers[0].settle([hot(-1)])
    assert world.take(hot())
