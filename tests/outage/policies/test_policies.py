"""The decisions of each policy while the store is out of reach."""

from __future__ import annotations

import pytest

from flask_bucket.decisions import Charge
from flask_bucket.errors import BucketUnreadable, StoreUnavailable
from flask_bucket.stores.outage import OutageStore, Policy
from tests.outage.policies.conftest import CHARGE, DAY, LIMIT, Clock, Fickle


def test_settling_in_an_outage_is_lost_and_raises_nothing(
    store: OutageStore, fickle: Fickle
) -> None:
    fickle.error = StoreUnavailable("gone")
    store.settle([CHARGE])
    assert store.health().state == "degraded"


def test_deny_without_an_outage_says_the_interval(fickle: Fickle, clock: Clock) -> None:
    store = OutageStore(fickle, "deny", recovery_interval=2, clock=clock)
    fickle.error = BucketUnreadable("WRONGTYPE")
    assert store.take([CHARGE]).retry_after == 2


def test_the_application_is_told_when_an_outage_begins_and_ends(
    fickle: Fickle, clock: Clock
) -> None:
    told: list[str] = []
    store = OutageStore(
        fickle, clock=clock, on_outage=told.append, on_recovery=lambda: told.append("over")
    )
    for error in (StoreUnavailable("gone"), None):
        fickle.error = error
        clock.now += 1
        for _ in range(3):
            store.take([CHARGE])
    assert told == ["gone", "over"]


def test_a_reset_reaches_the_store_as_it_was_asked_for(fickle: Fickle, clock: Clock) -> None:
    store = OutageStore(fickle, clock=clock)
    for key in (CHARGE.key, "bucket:{bob}:page:per-day", "other:{alice}:page:per-day"):
        store.take([Charge(LIMIT, key)])
    assert store.reset("alice", "bucket") == 1


@pytest.mark.parametrize(("policy", "allowed"), [("allow", True), ("deny", False), ("local", True)])
def test_the_policy_decides_what_the_store_cannot(
    fickle: Fickle, policy: Policy, allowed: bool
) -> None:
    store = OutageStore(fickle, policy)
    fickle.error = StoreUnavailable("gone")
    for decision in (store.take([CHARGE]), store.peek([CHARGE])):
        assert (decision.allowed, decision.degraded) == (allowed, True)


def test_every_request_passes_by_default(fickle: Fickle) -> None:
    store = OutageStore(fickle)
    fickle.error = StoreUnavailable("gone")
    assert store.take([Charge(LIMIT, CHARGE.key, 11)])


def test_a_look_takes_nothing_under_the_local_policy(fickle: Fickle) -> None:
    store = OutageStore(fickle, "local")
    fickle.error = StoreUnavailable("gone")
    for _ in range(2):
        (outcome,) = store.peek([Charge(LIMIT, CHARGE.key, 10)]).outcomes
        assert (outcome.allowed, outcome.remaining) == (True, 0)
    assert store.take([Charge(LIMIT, CHARGE.key, 10)])


def test_a_time_that_is_passed_in_reaches_the_store_and_the_local_buckets(fickle: Fickle) -> None:
    store = OutageStore(fickle, "local")
    for error in (None, StoreUnavailable("gone")):
        fickle.error = error
        assert store.take([Charge(LIMIT, CHARGE.key, 10)], now=DAY)
        assert not store.peek([CHARGE], now=DAY)
        assert not store.take([CHARGE], now=DAY)
        assert store.take([CHARGE], now=DAY + DAY // 10)
        store = OutageStore(fickle, "local")
    fickle.error = None
    store.settle([Charge(LIMIT, CHARGE.key, -10)], now=DAY + DAY // 10)
    assert store.peek([CHARGE], now=DAY + DAY // 10).outcomes[0].remaining == 9
    fickle.reset("alice")
    store.settle([Charge(LIMIT, CHARGE.key, 10)], now=DAY)
    assert not store.peek([CHARGE], now=DAY)
    assert store.peek([CHARGE], now=DAY + DAY // 10)


def test_deny_says_when_to_come_back(fickle: Fickle, clock: Clock) -> None:
    store = OutageStore(fickle, "deny", recovery_interval=2, clock=clock)
    fickle.error = StoreUnavailable("gone")
    assert store.take([CHARGE]).retry_after == 2
    clock.now += 0.5
    assert store.take([CHARGE]).retry_after == 1.5
    clock.now += 1
    assert store.take([CHARGE]).retry_after == 0.5
    assert store.take([], shadow=[CHARGE]).allowed
