"""Connections are made in the background: a slow one delays nobody, and is used once it is up."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from flask_bucket import Charge, Limit, StoreUnavailable
from flask_bucket.errors import Connecting
from flask_bucket.stores.redis import RedisStore
from tests.outage.proxy import Proxy
from tests.outage.service import ORDINARY, TIMEOUT, Service, Stalls, at_once
from tests.outage.table import Row, saw
from tests.servers import Server, TlsServer

CHARGE = Charge(Limit.parse("50/day"), "bucket:{alice}:page:per-day")


class Resolver:
    """The system's resolver, made slow."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.calls = 0
        self._system: Callable[..., Any] = socket.getaddrinfo

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        self.calls += 1
        time.sleep(self.seconds)  # as a name server does that is far away, or gone
        return self._system(*arguments, **more)


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    made = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", made)
    return made


def eventually(check: Callable[[], bool], seconds: float = 15) -> bool:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if check():
            return True
        time.sleep(0.01)  # until another thread is there
    return False


def measured(fault: str, service: Service) -> Row:
    """Send requests until the store decides, and a few more; return the row of the table."""
    began = time.monotonic()
    decided = eventually(lambda: service.get().decided_by_store)
    took = time.monotonic() - began
    assert decided, fault
    for _ in range(20):
        service.get()
    worst = max(one.seconds for one in service.seen)
    return Row(fault, service.policy, saw(service.seen), worst, took, "exact")


def test_a_slow_resolver_costs_a_worker_a_moment_once(
    valkey: Server, resolver: Resolver, stalls: Stalls, table: list[Row]
) -> None:
    resolver.seconds = 0.5
    service = Service(f"redis://localhost:{valkey.port}")
    first = service.get()
    assert not first.decided_by_store
    assert first.seconds < TIMEOUT + ORDINARY + stalls.longest
    assert service.health().state == "connecting", "nothing has failed"
    table.append(measured("resolver takes 0.5 s", service))
    assert service.health().state == "ok"
    assert all(service.get().decided_by_store for _ in range(20))
    assert resolver.calls == 1
    service.close()


def test_a_resolver_slower_than_the_connect_timeout_delays_nobody_and_serves_later(
    valkey: Server, resolver: Resolver, stalls: Stalls, table: list[Row]
) -> None:
    resolver.seconds = 1.0
    options = {"BUCKET_CONNECT_TIMEOUT": 0.4}
    service = Service(f"redis://localhost:{valkey.port}", options=options)

    def is_an_outage() -> bool:
        service.get()
        return service.health().state == "degraded"

    assert eventually(is_an_outage)
    table.append(measured("resolver takes 1 s, and connecting may take 0.4 s", service))
    assert max(s.seconds for s in service.seen) < TIMEOUT + ORDINARY + stalls.longest
    assert resolver.calls <= 2, "the late answer was used"
    service.close()


def test_a_slow_tls_handshake_is_finished_and_used(
    tls_server: TlsServer, stalls: Stalls, table: list[Row]
) -> None:
    options = {"BUCKET_REDIS_OPTIONS": {"ssl_ca_certs": str(tls_server.ca)}}
    with Proxy(tls_server.port) as proxy:
        proxy.latency = 0.4  # of each part of the handshake that the server sends
        service = Service(f"rediss://localhost:{proxy.port}", options=options)
        assert not service.get().decided_by_store
        assert eventually(lambda: proxy.connections == 1)
        proxy.latency = 0  # from now on: what was sent already is late all the same
        table.append(measured("TLS handshake takes 0.4 s", service))
        assert proxy.connections == 1, "it was not thrown away and begun anew"
        service.close()


def test_requests_that_come_together_share_the_connection_in_the_making(
    valkey: Server, resolver: Resolver
) -> None:
    resolver.seconds = 0.3
    service = Service(f"redis://localhost:{valkey.port}", options={"BUCKET_MAX_CONNECTIONS": 1})
    at_once(*[service.get] * 6)
    assert resolver.calls == 1
    assert eventually(lambda: service.get().decided_by_store)
    service.close()


def test_a_refused_connection_is_told_at_once_to_all_who_wait(
    resolver: Resolver, stalls: Stalls
) -> None:
    resolver.seconds = 0.5  # by then all of them wait
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    store = RedisStore.from_url(f"redis://127.0.0.1:{port}", timeout=60, connect_timeout=60)
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            store.take([CHARGE])
        except StoreUnavailable as error:
            errors.append(error)

    began = time.monotonic()
    at_once(*[ask] * 5)
    assert time.monotonic() - began < 15 + stalls.longest, "nobody waits until the end"
    assert len(errors) == 5
    assert not any(isinstance(error, Connecting) for error in errors)
    assert resolver.calls == 1, "all of them waited for one attempt"
    store.close()


def test_a_connection_made_after_close_is_dropped(own_server: Server, resolver: Resolver) -> None:
    resolver.seconds = 0.4
    store = RedisStore.from_url(f"redis://localhost:{own_server.port}", timeout=0.05)
    with pytest.raises(Connecting):
        store.take([CHARGE])
    store.close()
    assert eventually(lambda: makers() == [])
    with own_server.client() as client:
        assert eventually(lambda: len(client.client_list()) == 1)


def test_the_maker_lives_only_while_it_connects(valkey: Server) -> None:
    store = RedisStore.from_url(valkey.url, timeout=5)
    assert store.take([CHARGE])
    assert eventually(lambda: makers() == [])
    store.close()


def test_a_thread_that_cannot_be_started_is_an_outage(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    service = Service(valkey.url)
    client = service.app.test_client()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert client.get("/", headers={"X-Client": "alice"}).status_code == 200
    assert service.health().state == "degraded"
    monkeypatch.undo()
    service.recover()
    service.close()


@pytest.mark.parametrize("runs", [True, False])
def test_a_signal_that_interrupts_the_start_of_a_thread_costs_one_request(
    valkey: Server, monkeypatch: pytest.MonkeyPatch, runs: bool
) -> None:
    """The thread may run or not."""

    class LateError(Exception):
        """As the handler of an alarm raises it."""

    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        if runs:
            start(thread)
        raise LateError

    store = RedisStore.from_url(valkey.url, timeout=5)
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(LateError):
        store.take([CHARGE])
    monkeypatch.undo()
    assert store.take([CHARGE])
    store.close()


def makers() -> list[threading.Thread]:
    """Return the threads that make connections."""
    return [thread for thread in threading.enumerate() if thread.name == "flask-bucket-maker"]
