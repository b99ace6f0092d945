"""How many tokens are taken ahead."""

from __future__ import annotations

from typing import Any

import pytest

from flask_bucket import Charge, Limit
from flask_bucket.stores.lease import share_of_worker
from tests.leases.conftest import HOT, KEY, LEASE, SECOND, World, hot


def test_most_requests_to_a_hot_bucket_take_no_call(world: World) -> None:
    for _ in range(700):
        assert world.take(hot())
        world.wait(0.001)
    assert len(world.store.takes) < 700 * 0.05


def test_a_cold_bucket_is_charged_with_each_request(world: World) -> None:
    for _ in range(10):
        decision = world.take(hot())
        assert (decision.allowed, decision.leased) == (True, False)
        world.wait(2 * LEASE)
    assert len(world.store.takes) == 10
    assert world.in_bucket() == HOT.capacity


def test_as_much_is_taken_ahead_as_was_used(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    assert world.take(hot())
    assert world.store.takes[-1][0].up_to == 1 + 20
    calls = len(world.store.takes)
    for _ in range(20):
        assert world.take(hot()).leased
    assert len(world.store.takes) == calls


def test_a_worker_holds_its_share_at_most(world: World) -> None:
    for _ in range(3):
        world.warm(150)
        world.wait(LEASE / 2)
    asked = [(charge.up_to or 1) - charge.cost for (charge,) in world.store.takes]
    assert max(asked) == share_of_worker(HOT, LEASE, 2) == 100


@pytest.mark.parametrize(
    ("limit", "seconds", "workers", "share"),
    [
        (HOT, 0.1, 2, 100),
        (HOT, 0.1, None, 0),
        (HOT, 0.1, 200, 0),  # one token each saves no call
        (HOT, 0.1, 100, 2),
        (Limit.parse("30/second burst 800"), 0.1, 2, 0),  # three tokens in a lease's time
        (Limit.parse("40/second burst 800"), 0.1, 2, 100),
    ],
)
def test_the_share_of_a_worker(
    limit: Limit, seconds: float, workers: int | None, share: int
) -> None:
    assert share_of_worker(limit, seconds, workers) == share


def test_without_the_number_of_workers_nothing_is_leased(world: World) -> None:
    world.workers[0] = world.worker(None)
    world.warm(20)
    assert len(world.store.takes) == 20
    assert all(charge.up_to is None for charges in world.store.takes for charge in charges)


def test_a_limit_without_a_lease_is_charged_as_ever(world: World) -> None:
    charges = (Charge(HOT, KEY),)
    for _ in range(5):
        world.workers[0].take(charges)
    assert all(asked is charges for asked in world.store.takes)


@pytest.mark.parametrize("kind", ["slot", "ban"])
def test_only_tokens_are_taken_ahead(world: World, kind: Any) -> None:
    special = Charge(HOT, f"{KEY}!", kind=kind, member="a", lasts=SECOND, lease=LEASE)
    for _ in range(5):
        world.take(hot(), special)
        assert [charge.up_to for charge in world.store.takes[-1] if charge.kind == kind] == [None]
