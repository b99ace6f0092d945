"""Outages as the application sees them: health and signals."""

from __future__ import annotations

import time

from flask_bucket import store_recovered, store_unavailable
from flask_bucket.errors import StoreUnavailable
from flask_bucket.stores.breaker import Health
from flask_bucket.stores.memory import MemoryStore
from flask_bucket.stores.outage import OutageStore, health_of
from flask_bucket.stores.refusals import RefusalStore
from tests.outage.policies.conftest import CHARGE, Clock, Fickle
from tests.outage.service import Service
from tests.servers import Server


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
