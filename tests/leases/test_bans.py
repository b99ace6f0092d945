"""Bans beside leases."""

from __future__ import annotations

from flask_bucket import Charge
from tests.leases.conftest import HOT, KEY, LEASE, World, ban, hot


def test_a_ban_is_asked_for_although_tokens_are_held(world: World) -> None:
    world.warm()
    assert world.take(hot(), ban()).leased
    assert world.store.takes[-1] == [ban()]


def test_a_request_that_a_ban_refuses_spends_nothing_of_a_lease(world: World) -> None:
    world.warm()
    world.wait(LEASE / 2)
    world.take(hot())
    before = world.notes["spent"]
    world.memory.take([ban().refusal()], [ban()])
    decision = world.take(hot(), ban())
    assert not decision
    assert [outcome.kind for outcome in decision.outcomes if not outcome.allowed] == ["ban"]
    assert world.notes["spent"] == before
    world.workers[0].close()
    assert world.memory.peek([Charge(HOT, KEY, 0)]).outcomes[0].remaining >= HOT.capacity - 21


def test_a_refusal_that_a_lease_remembers_gives_back_no_ban(world: World) -> None:
    world.warm()
    world.memory.settle([hot(2 * HOT.capacity)])
    world.wait(LEASE)
    assert not world.take(hot())
    calls = len(world.store.takes)
    assert world.take(hot(), held=[ban()]).cached
    assert world.store.settled == []
    assert len(world.store.takes) == calls
