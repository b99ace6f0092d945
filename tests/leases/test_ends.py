"""The end of a lease, and the events that do not end it."""

from __future__ import annotations

import pytest

from flask_bucket import Charge, Limit
from flask_bucket.stores import leases
from tests.leases.conftest import HOT, KEY, LEASE, OTHER, World, hot


def test_a_reset_ends_the_leases_of_its_client(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    world.workers[0].reset("someone else")
    assert world.take(hot()).leased
    world.workers[0].reset("all")
    assert not world.take(hot()).leased
    assert world.store.takes[-1][0].rest == 0


def test_a_changed_limit_ends_a_lease_and_gives_back_what_is_left(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    changed = Charge(Limit.parse("2000/second burst 800"), KEY, lease=LEASE)
    assert not world.take(changed).leased
    assert world.store.takes[-1][0].rest == 20


def test_closing_gives_back_what_is_held(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    assert world.in_bucket() == 779
    world.workers[0].close()
    assert [charge.cost for charge in world.store.settled] == [-20]


def test_a_forked_child_holds_nothing(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    world.workers[0].after_fork()
    assert not world.take(hot()).leased


def test_an_outage_is_no_reason_to_hold_anything(world: World) -> None:
    world.warm(20)
    world.store.is_degraded = True
    world.wait(LEASE)
    decision = world.take(hot())
    assert (decision.allowed, decision.degraded, decision.leased) == (True, True, False)
    assert world.take(hot()).degraded


def test_a_lease_goes_on_through_an_outage(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    world.store.is_degraded = True
    assert [world.take(hot()).degraded for _ in range(21)] == [False] * 20 + [True]


def test_no_more_is_taken_ahead_than_there_is(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.memory.settle([Charge(HOT, KEY, world.in_bucket() - 6)])
    rest = world.workers[0].peek([hot(0)])
    assert rest.outcomes[0].remaining == 6
    assert world.take(hot())
    assert world.in_bucket() == 0
    assert world.store.takes[-1][0].up_to == 21
    held = 6 + world.store.takes[-1][0].rest - 1
    assert [world.take(hot()).allowed for _ in range(held + 1)] == [True] * held + [False]


def test_a_dry_run_charge_is_asked_for_all_the_same(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    dry = Charge(Limit.parse("1/minute"), OTHER)
    told = [world.take(hot(), shadow=[dry]).outcomes for _ in range(2)]
    assert [(o.shadow, o.allowed) for o in told[0]] == [(False, True), (True, True)]
    assert [(o.shadow, o.allowed) for o in told[1]] == [(False, True), (True, False)]


def test_a_time_that_is_passed_in_is_asked_about(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    assert not world.take(hot(), now=world.now).leased


def test_all_tokens_are_noted(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    for _ in range(11):
        world.take(hot())
    world.wait(LEASE)
    world.take(hot(lease=0.2))  # not hot in this time, so that nothing is taken ahead
    assert world.notes["spent"] >= 10
    assert world.notes["returned"] == world.notes["leased"] - world.notes["spent"]
    assert world.in_bucket() == 799


def test_the_buckets_used_last_are_remembered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "ENTRIES", 2)
    for key in ("a", "b", "a", "c"):
        world.take(Charge(HOT, key, lease=LEASE))
    assert [*world.workers[0]._leases] == ["a", "c"]
