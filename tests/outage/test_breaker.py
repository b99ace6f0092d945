"""The breaker and the policies, with a clock and a store of the test's own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Hashable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from flask_bucket import store_recovered, store_unavailable
from flask_bucket.decisions import Charge, Decision
from flask_bucket.errors import BucketUnreadable, Connecting, StoreUnavailable
from flask_bucket.limits import Limit
from flask_bucket.stores.breaker import Breaker, Health
from flask_bucket.stores.levels import Levels
from flask_bucket.stores.memory import MemoryStore
from flask_bucket.stores.outage import OutageStore, Policy, health_of, share_of
from flask_bucket.stores.refusals import RefusalStore
from tests.outage.service import Service
from tests.servers import Server

LIMIT = Limit.parse("10/day")
CHARGE = Charge(LIMIT, "bucket:{alice}:page:per-day")


#: Of any time, in microseconds.
DAY = 86_400_000_000


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
        self.settle_calls: list[Sequence[Charge]] = []

    def take(self, *arguments: Any, **more: Any) -> Decision:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return super().take(*arguments, **more)

    def peek(self, charges: Sequence[Charge], now: int | None = None) -> Decision:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return super().peek(charges, now)

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        self.settle_calls.append(charges)
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
        self.error = self._error(charges)
        return super().take(charges, *arguments, **more)

    def peek(self, charges: Sequence[Charge], now: int | None = None) -> Decision:
        self.error = self._error(charges)
        return super().peek(charges, now)

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        self.error = self._error(charges)
        super().settle(charges, now)

    def _error(self, charges: Sequence[Charge]) -> StoreUnavailable | None:
        return StoreUnavailable("dead") if charges[0].key in self.dead else None


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fickle() -> Fickle:
    return Fickle()


@pytest.fixture
def store(fickle: Fickle, clock: Clock) -> OutageStore:
    return OutageStore(fickle, clock=clock)


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


def test_a_look_and_a_settlement_concern_the_server_of_their_key(clock: Clock) -> None:
    nodes = Nodes()
    store = OutageStore(nodes, recovery_interval=1, clock=clock)
    other = Charge(LIMIT, "bucket:{other}:page:per-day")
    nodes.dead = {CHARGE.key}
    store.settle([CHARGE])
    for _ in range(3):
        store.settle([CHARGE])
        assert store.peek([CHARGE]).degraded
        assert store.take([CHARGE]).degraded
        assert not store.peek([other]).degraded
    assert nodes.asked == 1 + 3


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


@pytest.mark.parametrize("share", ["0.25", "1/3", "1/7", "0.0001", "0.9999", "123457/999983"])
@pytest.mark.parametrize(
    "limit",
    [
        Limit.parse("10007 per 30 days"),
        Limit.parse("5/second burst 20"),
        Limit.parse("7 per 13 seconds"),
        Limit.parse("9999991/day burst 900000000"),
        Limit(10**15, 10**6, 3, "rapid"),
        Limit(3 * 10**15, 1, 3, "slow"),
    ],
    ids=str,
)
def test_a_share_is_never_too_much_nor_an_error(limit: Limit, share: str) -> None:
    part, fraction = share_of(limit, Fraction(share)), Fraction(share)
    capacity = max(1, int(limit.capacity * fraction))
    assert capacity / 2 < part.capacity <= capacity
    assert limit.rate * fraction / 2 < part.rate <= limit.rate * fraction
    assert part.name == limit.name


@pytest.mark.parametrize("share", [0.25, 1 / 3, 0.0001])
def test_a_share_of_a_usual_limit_is_exact(share: float) -> None:
    limit, fraction = Limit.parse("7/day"), Fraction(str(share)).limit_denominator(1_000_000)
    assert share_of(limit, fraction).rate == limit.rate * fraction


def test_a_share_that_fills_in_no_lifetime_is_no_error() -> None:
    assert share_of(Limit(900_000, 1, 10**10, "aeons"), Fraction(1, 10**6)).capacity == 1


def test_a_third_is_a_share(fickle: Fickle, clock: Clock) -> None:
    store = OutageStore(fickle, "local", local_share=1 / 3, clock=clock)
    fickle.error = StoreUnavailable("gone")
    assert [store.take([CHARGE]).allowed for _ in range(4)] == [True, True, True, False]


def local_charges(store: OutageStore, cost: int, now: int | None = None) -> list[Charge]:
    """Take tokens from the process's own bucket, and return the charge as it was taken."""
    charge = Charge(LIMIT, CHARGE.key, cost)
    (outcome,) = store.take([charge], now=now).outcomes
    assert outcome.taken_from == "local"
    return [charge.taken_as(outcome)]


def test_tokens_of_the_process_are_given_back_to_it_during_an_outage(fickle: Fickle) -> None:
    store = OutageStore(fickle, "local")
    fickle.error = StoreUnavailable("gone")
    held = local_charges(store, 10)
    never = Charge(LIMIT, "bucket:{alice}:other:per-day", 11)
    assert not store.take([never], held=held)
    assert store.take([Charge(LIMIT, CHARGE.key, 10)])


def test_tokens_of_the_process_are_given_back_to_it_after_an_outage(
    fickle: Fickle, clock: Clock
) -> None:
    store = OutageStore(fickle, "local", clock=clock)
    other = Charge(LIMIT, "bucket:{alice}:other:per-day", 10)

    def remaining(error: Exception | None) -> int:
        fickle.error, clock.now = error, clock.now + 1
        return store.take([Charge(LIMIT, CHARGE.key, 0)], now=DAY).outcomes[0].remaining

    fickle.error = StoreUnavailable("gone")
    held = local_charges(store, 10, now=DAY)
    store.settle([replace(held[0], cost=5)], now=DAY)  # a debt of 5
    assert remaining(None) == 10  # in the store, which was not asked
    assert store.take([other], held=held, now=DAY)
    assert remaining(StoreUnavailable("gone")) == 0  # a request that is allowed keeps its tokens
    assert remaining(None) == 10
    assert not store.take([other], held=held, now=DAY)
    assert remaining(None) == 10
    assert remaining(StoreUnavailable("gone")) == 5


def test_a_settlement_of_tokens_of_the_process_concerns_no_store(
    fickle: Fickle, clock: Clock
) -> None:
    store = OutageStore(fickle, "local", clock=clock)
    fickle.error = StoreUnavailable("gone")
    (taken,) = local_charges(store, 10, now=DAY)
    fickle.error, clock.now = None, clock.now + 1
    other = Charge(LIMIT, "bucket:{alice}:other:per-day", 3)
    store.settle([taken.given_back(), other], now=DAY)
    assert [[c.key for c in charges] for charges in fickle.settle_calls] == [[other.key]]
    fickle.error = StoreUnavailable("gone again")
    assert store.take([Charge(LIMIT, CHARGE.key, 10)], now=DAY)
    store.settle([replace(taken, cost=-1)], now=DAY + DAY // 2)
    (outcome,) = store.peek([CHARGE], now=DAY + DAY // 2).outcomes
    assert outcome.remaining == 5  # 5 + 1, less 1 that is looked for


def test_the_local_policy_counts_dry_run_limits(fickle: Fickle, clock: Clock) -> None:
    store = OutageStore(fickle, "local", clock=clock)
    fickle.error = StoreUnavailable("gone")
    once = Charge(Limit.parse("1/day"), CHARGE.key)
    decisions = [store.take([], shadow=[once]) for _ in range(2)]
    assert [decision.allowed for decision in decisions] == [True, True]
    assert [decision.outcomes[0].allowed for decision in decisions] == [True, False]
    assert all(decision.outcomes[0].shadow for decision in decisions)


def ban() -> Charge:
    return Charge(Limit.parse("2/day"), "bucket:{alice}:@limiter:!ban", 0, kind="ban", lasts=DAY)


@pytest.mark.parametrize("place", ["charges", "held", "shadow"])
def test_the_local_policy_counts_for_bans_in_full(fickle: Fickle, clock: Clock, place: str) -> None:
    """Each worker sees its own refusals, and bans after as many as the ban says."""
    store = OutageStore(fickle, "local", local_share=0.5, clock=clock)
    fickle.error = StoreUnavailable("dead")
    refused = replace(CHARGE, cost=11, counts_for=(ban().key,))
    bans = {place: [ban()]}
    for begins in (False, True):
        dry = [refused] if place == "shadow" else []
        asked = [*bans.get("charges", []), *([] if dry else [refused])]
        shadow = [*dry, *bans.get("shadow", [])]
        decision = store.take(asked, bans.get("held", []), shadow, now=DAY)
        (told,) = [outcome for outcome in decision.outcomes if outcome.kind == "ban"]
        assert (told.taken, told.allowed, told.taken_from) == (1, not begins, "local")
        assert told.retry_after == (86_400 if begins else 0)


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


# What the local policy knows of the buckets when an outage begins.


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
