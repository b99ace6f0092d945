"""Refusals of leased limits."""

from __future__ import annotations

from typing import Any

from flask_bucket import Charge, Decision, Limit
from tests.leases.conftest import KEY, LEASE, OTHER, World, hot


def test_a_refusal_is_repeated_for_the_leases_time(world: World) -> None:
    world.take(hot(800))
    refused = world.take(hot())
    assert (refused.allowed, refused.cached) == (False, False)
    assert refused.retry_after == LEASE
    calls = len(world.store.takes)
    for _ in range(99):
        world.wait(0.001)
        again = world.take(hot())
        assert (again.allowed, again.cached) == (False, True)
        assert again.retry_after is not None
        assert again.outcomes[0].remaining == 0
    assert len(world.store.takes) == calls
    world.wait(again.retry_after or 0)
    assert world.take(hot())


def test_a_repeated_refusal_tells_a_larger_cost_its_own_wait(world: World) -> None:
    world.take(hot(800))
    world.take(hot())
    larger = world.take(hot(301))
    assert larger.cached
    assert larger.retry_after is not None
    world.wait(larger.retry_after)
    assert world.take(hot(301))
    assert world.take(hot(801)).retry_after is None


def test_a_smaller_cost_than_was_refused_is_asked_about(world: World) -> None:
    world.take(hot(799))
    assert not world.take(hot(2))
    assert world.take(hot(1))


def test_a_refusal_gives_the_lease_its_tokens_back(world: World) -> None:
    page = Charge(Limit.parse("1/minute"), OTHER)
    world.take(page)
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())  # holds 20
    for _ in range(5):
        refused = world.take(hot(), page)
        assert not refused
        assert [outcome.allowed for outcome in refused.outcomes] == [True, False]
    assert world.store.takes[-1] == [page]  # in one call, without what is leased
    for _ in range(20):
        assert world.take(hot()).leased


def test_a_later_refusal_gives_the_lease_its_tokens_back(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    decision = world.take(hot())
    held = [hot().taken_as(decision.outcomes[0])]
    page = Charge(Limit.parse("1/minute"), OTHER)
    world.take(page)
    assert not world.take(page, held=held)
    assert world.store.held[-1] == []
    assert world.store.settled == []
    for _ in range(20):
        assert world.take(hot()).leased


def test_what_was_held_before_a_remembered_refusal_is_given_back(world: World) -> None:
    page = Charge(Limit.parse("1/minute"), OTHER)
    world.take(page)
    world.take(hot(800))
    world.take(hot())
    assert world.take(hot(), held=[page]).cached
    assert world.memory.take([page])


def test_tokens_for_which_a_lease_has_no_room_go_to_the_store(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    held = [hot(300, taken_from="lease")]
    page = Charge(Limit.parse("1/minute"), OTHER)
    world.take(page)
    assert not world.take(page, held=held)
    assert [charge.cost for charge in world.store.settled] == [-(300 - 80)]


def test_a_lease_refilled_meanwhile_sends_what_a_refused_request_took_to_the_store(
    world: World,
) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    page, lease = Charge(Limit.parse("1/minute"), OTHER), world.workers[0]._leases[KEY]
    world.take(page)
    before = world.in_bucket() + lease.tokens
    take = world.store.take

    def others_first(*asked: Any) -> Decision:
        """Refill the lease by another thread, while this request waits for its answer."""
        lease.tokens += lease.most - lease.tokens
        return take(*asked)

    world.store.take = others_first  # type: ignore[method-assign, assignment]
    refilled = lease.most - (lease.tokens - 10)
    assert not world.take(hot(10), page)
    assert world.in_bucket() + lease.tokens == before + refilled
    assert [charge.cost for charge in world.store.settled] == [-10]


def test_a_store_closed_meanwhile_gives_back_what_a_refused_request_took(world: World) -> None:
    page, worker = Charge(Limit.parse("1/minute"), OTHER), world.workers[0]
    world.take(page)
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    before = world.in_bucket() + worker._leases[KEY].tokens
    take = world.store.take

    def closed_first(*asked: Any) -> Decision:
        """Close this worker's store by another thread, while this request waits."""
        worker.close()
        return take(*asked)

    world.memory.close = lambda: None  # type: ignore[method-assign]  # others go on
    world.store.take = closed_first  # type: ignore[method-assign, assignment]
    assert not world.take(hot(10), page)
    assert world.in_bucket() == before
