"""The levels of buckets that the local policy knows when an outage begins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flask_bucket.decisions import Charge
from flask_bucket.errors import StoreUnavailable
from flask_bucket.stores.levels import Levels
from flask_bucket.stores.memory import MemoryStore
from flask_bucket.stores.outage import OutageStore, Policy
from tests.outage.policies.conftest import CHARGE, LIMIT, Clock, Fickle


def left(store: OutageStore, charge: Charge = CHARGE) -> int:
    """Return what a bucket of the process holds during an outage."""
    decision = store.peek([replace(charge, cost=0)])
    assert decision.degraded
    return decision.outcomes[0].remaining


def test_a_local_bucket_begins_with_what_the_store_last_said(fickle: Fickle, clock: Clock) -> None:
    store = OutageStore(fickle, "local", clock=clock)
    store.take([replace(CHARGE, cost=7)])
    fickle.error = StoreUnavailable("gone")
    assert left(store) == 3
    assert [store.take([CHARGE]).allowed for _ in range(4)] == [True, True, True, False]


def test_a_refused_client_stays_refused_in_an_outage(fickle: Fickle, clock: Clock) -> None:
    store = OutageStore(fickle, "local", clock=clock)
    assert [store.take([replace(CHARGE, cost=6)]).allowed for _ in range(2)] == [True, False]
    fickle.error = StoreUnavailable("gone")
    assert not store.take([replace(CHARGE, cost=6)]).allowed


def test_what_the_store_said_is_refilled_since(fickle: Fickle, clock: Clock) -> None:
    store = OutageStore(fickle, "local", clock=clock)
    store.take([replace(CHARGE, cost=10)])
    fickle.error = StoreUnavailable("gone")
    clock.now += 86_400 / 10 * 4
    assert left(store) == 4


def test_a_local_bucket_begins_with_its_share(fickle: Fickle, clock: Clock) -> None:
    store = OutageStore(fickle, "local", local_share=0.5, clock=clock)
    store.take([replace(CHARGE, cost=6)])
    fickle.error = StoreUnavailable("gone")
    assert left(store) == 2
    assert left(store, Charge(LIMIT, "bucket:{bob}:page:per-day")) == 5  # nothing is known


def test_each_bucket_of_a_request_begins_with_its_own_level(fickle: Fickle, clock: Clock) -> None:
    store = OutageStore(fickle, "local", clock=clock)
    store.take([replace(CHARGE, cost=7)])
    fickle.error = StoreUnavailable("gone")
    decision = store.take([Charge(LIMIT, "bucket:{bob}:page:per-day"), CHARGE])
    assert [outcome.remaining for outcome in decision.outcomes] == [9, 2]


def test_a_level_holds_at_a_time_that_is_passed_in(fickle: Fickle, clock: Clock) -> None:
    store = OutageStore(fickle, "local", clock=clock)
    store.take([replace(CHARGE, cost=7)])
    fickle.error = StoreUnavailable("gone")
    far_off = 2**52
    assert store.take([CHARGE], now=far_off).outcomes[0].remaining == 2


def test_what_was_settled_is_known(fickle: Fickle, clock: Clock) -> None:
    store = OutageStore(fickle, "local", clock=clock)
    store.take([replace(CHARGE, cost=5)])
    store.settle([replace(CHARGE, cost=4)])
    store.settle([replace(CHARGE, cost=-2)])
    fickle.error = StoreUnavailable("gone")
    assert left(store) == 3


def test_a_debt_is_known(fickle: Fickle, clock: Clock) -> None:
    store = OutageStore(fickle, "local", clock=clock)
    store.take([CHARGE])
    store.settle([replace(CHARGE, cost=10)])
    fickle.error = StoreUnavailable("gone")
    assert not store.take([CHARGE]).allowed


def test_what_a_refusal_gave_back_is_known(fickle: Fickle, clock: Clock) -> None:
    store = OutageStore(fickle, "local", clock=clock)
    store.take([replace(CHARGE, cost=5)])
    other = Charge(LIMIT, "bucket:{alice}:other:per-day", 11)
    assert not store.take([other], held=[replace(CHARGE, cost=5)])
    fickle.error = StoreUnavailable("gone")
    assert left(store) == 10


def test_what_dry_run_limits_hold_is_known(fickle: Fickle, clock: Clock) -> None:
    store = OutageStore(fickle, "local", clock=clock)
    store.take([], shadow=[replace(CHARGE, cost=10)])
    fickle.error = StoreUnavailable("gone")
    assert not store.take([], shadow=[CHARGE]).outcomes[0].allowed


def test_a_reset_is_known(fickle: Fickle, clock: Clock) -> None:
    store = OutageStore(fickle, "local", clock=clock)
    store.take([replace(CHARGE, cost=10)])
    store.reset("alice")
    fickle.error = StoreUnavailable("gone")
    assert left(store) == 10


def test_a_second_outage_grants_no_tokens_again(fickle: Fickle, clock: Clock) -> None:
    store = OutageStore(fickle, "local", clock=clock)
    for error in (StoreUnavailable("gone"), None, StoreUnavailable("gone again")):
        fickle.error = error
        clock.now += 1
        if error is None:
            store.take([CHARGE])
        else:
            assert store.take([replace(CHARGE, cost=5)])
    assert not store.take([CHARGE])


def test_what_is_known_has_a_bound(clock: Clock) -> None:
    levels = Levels(2, clock)
    for client in "abc":
        outcome = MemoryStore().take([replace(CHARGE, key=client)]).outcomes
        levels.note(outcome)
    assert [levels.pop(replace(CHARGE, key=client)) for client in "abc"] == [None, 9, 9]
    assert levels.pop(replace(CHARGE, key="c")) is None  # told once


@pytest.mark.parametrize("policy", ["allow", "deny"])
def test_other_policies_keep_nothing(fickle: Fickle, policy: Policy) -> None:
    assert OutageStore(fickle, policy)._levels is None
