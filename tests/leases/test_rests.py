"""The tokens left of a lease go back, once."""

from __future__ import annotations

from typing import Any

import pytest

from flask_bucket import Decision, StoreUnavailable
from tests.leases.conftest import HOT, LEASE, World, hot


def test_a_rest_goes_back_with_the_next_call_in_that_call(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    world.wait(1)  # the lease's time is over, and the bucket is full
    assert world.in_bucket() == HOT.capacity
    world.take(hot())
    (charge,) = world.store.takes[-1]
    assert (charge.rest, charge.up_to) == (20, 1)
    assert world.store.settled == []
    assert world.in_bucket() == HOT.capacity - 1


def test_tokens_are_not_spent_after_the_lease(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    world.wait(LEASE - 1e-6)
    assert world.take(hot()).leased
    world.wait(1e-6)
    assert not world.take(hot()).leased


def test_the_leases_time_counts_from_before_the_call(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    take = world.memory.take

    def slow(*arguments: Any) -> Decision:
        decision = take(*arguments)
        world.wait(LEASE)
        return decision

    world.memory.take = slow  # type: ignore[method-assign, assignment]
    world.take(hot())
    world.memory.take = take  # type: ignore[method-assign]
    assert not world.take(hot()).leased


def test_a_rest_is_sent_back_once_even_if_the_answer_is_lost(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    world.wait(LEASE)
    world.store.loses_answers = True
    with pytest.raises(StoreUnavailable):
        world.take(hot())
    assert world.store.takes[-1][0].rest == 20
    world.store.loses_answers = False
    world.take(hot())
    assert world.store.takes[-1][0].rest == 0


def test_a_lost_answer_leaves_room_for_the_next(world: World) -> None:
    world.warm(20)
    for _ in range(10):
        world.wait(LEASE)
        world.store.loses_answers = True
        with pytest.raises(StoreUnavailable):
            world.take(hot())
        world.store.loses_answers = False
        world.warm(20)
    world.wait(LEASE)
    assert world.take(hot())
    assert world.store.takes[-1][0].up_to == 21


def test_calls_at_the_same_time_hold_no_more_than_one(world: World) -> None:
    world.warm(150)
    world.wait(LEASE)
    take, deep = world.memory.take, 3

    def overtaken(*arguments: Any) -> Decision:
        nonlocal deep
        if deep:
            deep -= 1
            world.take(hot())  # another thread, before the answer
        return take(*arguments)

    world.memory.take = overtaken  # type: ignore[method-assign, assignment]
    calls = len(world.store.takes)
    world.take(hot())
    asked = [(charge.up_to or 1) - 1 for (charge,) in world.store.takes[calls:]]
    assert sum(asked) == 100
    assert world.in_bucket() >= HOT.capacity - 150 - 100 - 4
