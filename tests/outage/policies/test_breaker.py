"""When an outage begins and ends, and who tries the store meanwhile."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from flask_bucket.decisions import Charge, Decision
from flask_bucket.errors import BucketUnreadable, StoreUnavailable
from flask_bucket.stores.breaker import Breaker, Health
from flask_bucket.stores.outage import OutageStore
from tests.outage.policies.conftest import CHARGE, LIMIT, Clock, Fickle


def test_a_store_that_fails_is_tried_once_an_interval(
    store: OutageStore, fickle: Fickle, clock: Clock
) -> None:
    fickle.error = StoreUnavailable("gone")
    for _ in range(5):
        assert store.take([CHARGE]).degraded
    assert fickle.asked == 1
    clock.now += 1
    for _ in range(5):
        store.take([CHARGE])
    assert fickle.asked == 2
    clock.now += 1
    fickle.error = None
    assert not store.take([CHARGE]).degraded
    assert not store.take([CHARGE]).degraded


def test_while_one_request_tries_the_others_do_not_wait(fickle: Fickle, clock: Clock) -> None:
    entered, release = threading.Event(), threading.Event()

    class Hanging(Fickle):
        def take(self, *arguments: Any, **more: Any) -> Decision:
            entered.set()
            assert release.wait(20)
            raise StoreUnavailable("hangs")

    store = OutageStore(fickle, recovery_interval=1, clock=clock)
    fickle.error = StoreUnavailable("gone")
    store.take([CHARGE])
    store.store = Hanging()
    clock.now += 1
    trying = threading.Thread(target=store.take, args=([CHARGE],))
    trying.start()
    assert entered.wait(20)
    assert store.take([CHARGE]).degraded
    assert trying.is_alive()
    release.set()
    trying.join()


def test_a_call_from_before_the_outage_says_nothing_about_it(clock: Clock) -> None:
    breaker = Breaker(1, clock)
    early, late = breaker.enter(), breaker.enter()
    assert early is not None
    assert late is not None
    assert breaker.failed(early, "gone")
    assert not breaker.succeeded(late)
    assert not breaker.failed(late, "gone too")
    assert breaker.is_open


def test_a_failure_of_a_call_from_before_the_recovery_opens_no_new_outage(clock: Clock) -> None:
    breaker = Breaker(1, clock)
    first, late = breaker.enter(), breaker.enter()
    assert first is not None
    assert late is not None
    assert breaker.failed(first, "gone")
    clock.now += 1
    retry = breaker.enter()
    assert retry is not None
    assert breaker.succeeded(retry)
    assert not breaker.failed(late, "timed out at last")
    assert not breaker.is_open
    assert breaker.health() == Health()


def test_a_retry_of_an_earlier_outage_says_nothing_about_a_later_one(clock: Clock) -> None:
    breaker = Breaker(1, clock)
    tickets = []
    for _ in range(2):
        call = breaker.enter()
        assert call is not None
        assert breaker.failed(call, "gone")
        for _ in range(2):
            clock.now += 1
            retry = breaker.enter()
            assert retry is not None
            tickets.append(retry)
        if len(tickets) == 2:  # the second retry of the first outage answers late
            assert breaker.succeeded(tickets[0])
    assert not breaker.succeeded(tickets[1])
    assert breaker.is_open


def test_an_outage_has_two_log_lines(
    store: OutageStore, fickle: Fickle, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "flask_bucket")
    fickle.error = StoreUnavailable("gone")
    for _ in range(20):
        store.take([CHARGE])
        clock.now += 0.3
    fickle.error = None
    clock.now += 1
    for _ in range(3):
        store.take([CHARGE])
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert [record.getMessage() for record in caplog.records] == [
        "The store is out of reach; until it answers, BUCKET_ON_ERROR='allow' decides: gone",
        "The store answers again, and the limits hold.",
    ]


def test_a_server_that_takes_no_writes_does_not_recover_with_each_refusal(
    store: OutageStore, fickle: Fickle, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    other = Charge(LIMIT, "bucket:{other}:page:per-day")
    store.take([Charge(LIMIT, CHARGE.key, 10)])
    for _ in range(5):
        fickle.error = StoreUnavailable("OOM")
        store.take([other])
        clock.now += 1
        fickle.error = None
        assert not store.take([CHARGE])
        assert store.health().state == "recovering"
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert not store.take([other]).degraded
    assert store.health().state == "ok"
    assert len(caplog.records) == 2


def test_while_it_recovers_all_requests_go_through(
    store: OutageStore, fickle: Fickle, clock: Clock
) -> None:
    store.take([Charge(LIMIT, CHARGE.key, 10)])
    fickle.error = StoreUnavailable("gone")
    store.take([CHARGE])
    clock.now += 1
    fickle.error = None
    before = fickle.asked
    for _ in range(5):
        assert not store.take([CHARGE])
    assert fickle.asked == before + 5


def test_an_unreadable_bucket_is_no_outage(
    store: OutageStore, fickle: Fickle, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    fickle.error = BucketUnreadable("WRONGTYPE")
    for _ in range(20):
        assert store.take([CHARGE]).degraded
        clock.now += 0.25
    assert fickle.asked == 20
    assert store.health().state == "ok"
    assert len(caplog.records) == 5  # one a second
    assert caplog.records[0].getMessage() == (
        "A bucket cannot be read, and the outage policy decided: WRONGTYPE"
    )


def test_an_unreadable_bucket_met_by_the_retry_lets_the_others_through(
    store: OutageStore, fickle: Fickle, clock: Clock
) -> None:
    fickle.error = StoreUnavailable("gone")
    store.take([CHARGE])
    clock.now += 1
    fickle.error = BucketUnreadable("WRONGTYPE")
    assert store.take([CHARGE]).degraded
    assert store.health().state == "recovering"  # nothing was written
    fickle.error = None
    assert not store.take([CHARGE]).degraded


def test_a_look_at_a_bucket_ends_no_outage(
    store: OutageStore, fickle: Fickle, clock: Clock
) -> None:
    fickle.error = StoreUnavailable("gone")
    store.take([CHARGE])
    clock.now += 1
    fickle.error = None
    assert not store.take([Charge(LIMIT, CHARGE.key, 0)]).degraded
    assert not store.peek([CHARGE]).degraded
    assert store.health().state == "recovering"


def test_a_settlement_ends_an_outage(store: OutageStore, fickle: Fickle, clock: Clock) -> None:
    fickle.error = StoreUnavailable("gone")
    store.take([CHARGE])
    clock.now += 1
    fickle.error = None
    store.settle([CHARGE])
    assert store.health().state == "ok"
