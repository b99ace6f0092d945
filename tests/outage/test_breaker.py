"""The breaker and the policies, with a clock and a store of the test's own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Hashable, Sequence
from fractions import Fraction
from typing import Any

import pytest

from flask_bucket import store_recovered, store_unavailable
from flask_bucket.decisions import Charge, Decision
from flask_bucket.errors import BucketUnreadable, StoreUnavailable
from flask_bucket.limits import Limit
from flask_bucket.stores.breaker import Breaker, Health
from flask_bucket.stores.memory import MemoryStore
from flask_bucket.stores.outage import OutageStore, health_of, share_of
from flask_bucket.stores.refusals import RefusalStore
from tests.outage.service import Service
from tests.servers import Server

LIMIT = Limit.parse("10/day")
CHARGE = Charge(LIMIT, "bucket:{alice}:page:per-day")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Fickle(MemoryStore):
    """A store that fails when told to, and counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.asked = 0

    def take(self, *arguments: Any, **more: Any) -> Decision:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return super().take(*arguments, **more)

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        self.asked += 1
        if self.error is not None:
            raise self.error
        super().settle(charges, now)


class Nodes(Fickle):
    """A store of several servers, one for each client."""

    def __init__(self) -> None:
        super().__init__()
        self.dead: set[str] = set()

    def node_of(self, charges: Sequence[Charge]) -> Hashable:
        return charges[0].key

    def take(self, charges: Sequence[Charge], *arguments: Any, **more: Any) -> Decision:
        self.error = StoreUnavailable("dead") if charges[0].key in self.dead else None
        return super().take(charges, *arguments, **more)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fickle() -> Fickle:
    return Fickle()


@pytest.fixture
def store(fickle: Fickle, clock: Clock) -> OutageStore:
    return OutageStore(fickle, recovery_interval=1, clock=clock)


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
    assert not breaker.failed(late)
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
    assert "gone" in caplog.records[0].getMessage()


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
    for _ in range(50):
        assert store.take([CHARGE]).degraded
        clock.now += 0.1
    assert fickle.asked == 50
    assert store.health().state == "ok"
    assert 1 <= len(caplog.records) <= 6


def test_an_unreadable_bucket_met_by_the_retry_lets_the_others_through(
    store: OutageStore, fickle: Fickle, clock: Clock
) -> None:
    fickle.error = StoreUnavailable("gone")
    store.take([CHARGE])
    clock.now += 1
    fickle.error = BucketUnreadable("WRONGTYPE")
    assert store.take([CHARGE]).degraded
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


def test_each_of_several_servers_has_outages_of_its_own(clock: Clock) -> None:
    nodes = Nodes()
    store = OutageStore(nodes, recovery_interval=1, clock=clock)
    other = Charge(LIMIT, "bucket:{other}:page:per-day")
    nodes.dead = {CHARGE.key}
    for _ in range(3):
        assert store.take([CHARGE]).degraded
        assert not store.take([other]).degraded
    assert nodes.asked == 4
    assert store.health().state == "degraded"
    nodes.dead = set()
    clock.now += 1
    assert not store.take([CHARGE]).degraded
    assert store.health() == Health()


def test_health_tells_what_is_wrong_and_asks_nobody(
    store: OutageStore, fickle: Fickle, clock: Clock
) -> None:
    assert health_of(RefusalStore(store, 10)) == Health("ok", None, None, 0.0)
    fickle.error = StoreUnavailable("gone")
    store.take([CHARGE])
    asked = fickle.asked
    health = health_of(RefusalStore(store, 10))
    assert (health.state, health.reason, health.next_try) == ("degraded", "gone", 1.0)
    assert health.since is not None
    assert abs(time.time() - health.since) < 60
    assert fickle.asked == asked


def test_a_store_in_this_process_is_well() -> None:
    assert health_of(MemoryStore()).state == "ok"


def test_settling_in_an_outage_is_lost_and_raises_nothing(
    store: OutageStore, fickle: Fickle
) -> None:
    fickle.error = StoreUnavailable("gone")
    store.settle([CHARGE])
    assert store.health().state == "degraded"


def test_deny_says_when_to_come_back(fickle: Fickle, clock: Clock) -> None:
    store = OutageStore(fickle, "deny", recovery_interval=2, clock=clock)
    fickle.error = StoreUnavailable("gone")
    assert store.take([CHARGE]).retry_after == 2
    clock.now += 0.5
    assert store.take([CHARGE]).retry_after == 1.5
    assert store.take([], shadow=[CHARGE]).allowed


@pytest.mark.parametrize("share", [0.25, 1 / 3, 1 / 7, 0.0001, 1.0])
@pytest.mark.parametrize("text", ["10007 per 30 days", "5/second burst 20", "7 per 13 seconds"])
def test_a_share_is_never_too_much_nor_an_error(text: str, share: float) -> None:
    limit, fraction = Limit.parse(text), Fraction(str(share)).limit_denominator(1_000_000)
    part = share_of(limit, fraction)
    assert part.capacity == max(1, int(limit.capacity * fraction))
    assert part.rate <= limit.rate * fraction or part.capacity == 1


def test_a_third_is_a_share(fickle: Fickle, clock: Clock) -> None:
    store = OutageStore(fickle, "local", local_share=1 / 3, clock=clock)
    fickle.error = StoreUnavailable("gone")
    assert [store.take([CHARGE]).allowed for _ in range(4)] == [True, True, True, False]


def test_the_local_policy_counts_dry_run_limits(fickle: Fickle, clock: Clock) -> None:
    store = OutageStore(fickle, "local", clock=clock)
    fickle.error = StoreUnavailable("gone")
    once = Charge(Limit.parse("1/day"), CHARGE.key)
    decisions = [store.take([], shadow=[once]) for _ in range(2)]
    assert [decision.allowed for decision in decisions] == [True, True]
    assert [decision.outcomes[0].allowed for decision in decisions] == [True, False]
    assert all(decision.outcomes[0].shadow for decision in decisions)


def test_signals_are_sent_once_an_outage(own_server: Server) -> None:
    sent: list[str] = []

    def unavailable(app: object, limiter: object, reason: str) -> None:
        sent.append(reason)

    def recovered(app: object, limiter: object) -> None:
        sent.append("recovered")

    service = Service(own_server.url)
    with (
        store_unavailable.connected_to(unavailable, service.app),
        store_recovered.connected_to(recovered, service.app),
    ):
        service.get()
        own_server.kill()
        for _ in range(5):
            service.get()
        own_server.start()
        service.recover()
    assert len(sent) == 2
    assert sent[1] == "recovered"
    service.close()
