"""A connection in the making, as the breaker sees it."""

from __future__ import annotations

import pytest

from flask_bucket.errors import Connecting, StoreUnavailable
from flask_bucket.stores.breaker import Breaker, Health
from flask_bucket.stores.outage import OutageStore
from tests.outage.policies.conftest import CHARGE, Clock, Fickle


def test_a_connection_in_the_making_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    fickle = Fickle()
    store = OutageStore(fickle, "deny")
    fickle.error = Connecting("a connection has been in the making for 0.1 s")
    assert not store.take([CHARGE])
    assert not store.take([CHARGE])
    assert fickle.asked == 2, "each request asks again"
    assert store.health() == Health("connecting")
    fickle.error = None
    assert store.take([CHARGE])
    assert store.health() == Health("ok")
    assert caplog.records == []


def test_a_connection_that_two_requests_waited_for_in_vain_is_an_outage_until_it_is_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fickle = Fickle()
    store = OutageStore(fickle)
    fickle.error = Connecting("soon", in_vain=True)
    for _ in range(3):
        assert store.take([CHARGE]).degraded
    assert (store.health().state, store.health().reason) == ("degraded", "soon")
    assert "decides: soon" in caplog.text
    assert fickle.asked == 3, "none is held back"
    fickle.error = None
    assert not store.take([CHARGE]).degraded
    assert store.health() == Health("ok")
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


def test_a_connection_in_the_making_before_an_outage_says_nothing_about_it(clock: Clock) -> None:
    breaker = Breaker(1, clock)
    first, late = breaker.enter(), breaker.enter()
    assert first is not None
    assert late is not None
    assert breaker.failed(first, "gone")
    assert not breaker.connecting(late, "soon", in_vain=True)
    assert not breaker.is_connecting


def test_a_connection_that_fails_in_the_end_is_an_outage() -> None:
    fickle = Fickle()
    store = OutageStore(fickle)
    fickle.error = Connecting("soon")
    store.take([CHARGE])
    fickle.error = StoreUnavailable("refused")
    assert store.take([CHARGE]).degraded
    assert store.health().state == "degraded"


def test_a_connection_in_the_making_ends_no_outage() -> None:
    clock, fickle = Clock(), Fickle()
    store = OutageStore(fickle, clock=clock)
    fickle.error = StoreUnavailable("gone")
    store.take([CHARGE])
    fickle.error = Connecting("soon")
    clock.now += 1
    assert store.take([CHARGE]).degraded
    assert store.health().state == "degraded"
