"""The connections to one server: when one is kept, when the others go, and who waits for which."""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from flask_bucket import Charge, Limit, Limiter, StoreUnavailable
from flask_bucket.errors import BucketUnreadable, Connecting
from flask_bucket.stores.redis import RedisStore
from flask_bucket.stores.redis.dialing import Dialer
from flask_bucket.stores.redis.wire import Wire
from tests.outage.proxy import Proxy
from tests.outage.service import Stalls, at_once
from tests.outage.test_connecting import eventually
from tests.servers import Server

CHARGE = Charge(Limit.parse("50/day"), "bucket:{alice}:page:per-day")
WRONG = Charge(CHARGE.limit, "bucket:{alice}:wrong:per-day")


def taken_by_two(store: RedisStore, first: Callable[[], object], proxy: Proxy) -> list[int]:
    """Take while another call under way has the only connection."""
    answers: list[int] = []
    proxy.latency = 0.3
    thread = threading.Thread(target=first)
    thread.start()
    time.sleep(0.1)  # the first call is on its way
    answers.append(store.take([CHARGE]).outcomes[0].remaining)
    thread.join()
    proxy.latency = 0
    return answers


def test_one_lost_connection_drops_the_others_that_idle(valkey: Server) -> None:
    """All of them use the same network, so each would fail one more request."""
    with Proxy(valkey.port) as proxy:
        store = RedisStore.from_url(proxy.url, timeout=0.5)
        proxy.latency = 0.1
        while proxy.connections < 4:
            at_once(*[lambda: store.take([CHARGE])] * 4)
        proxy.latency = 0
        proxy.half_open()
        with pytest.raises(StoreUnavailable):
            store.take([CHARGE])
        assert store.take([CHARGE])
        store.close()


class LateError(Exception):
    """As the handler of an alarm raises it."""


def late(*_: object) -> None:
    raise LateError


@pytest.mark.parametrize("step", ["is_quiet", "call"])
def test_a_call_that_is_cut_short_costs_its_own_connection(
    valkey: Server, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The network is well, so the others are kept, and the lost ones are made anew."""
    with Proxy(valkey.port) as proxy:
        store = RedisStore.from_url(proxy.url, timeout=5, max_connections=2)
        proxy.latency = 0.1
        while proxy.connections < 2:
            at_once(*[lambda: store.take([CHARGE])] * 2)
        proxy.latency = 0
        with monkeypatch.context() as patched:
            patched.setattr(Wire, step, late)
            for _ in range(2):
                with pytest.raises(LateError):
                    store.take([CHARGE])
        assert proxy.begun == 2
        assert store.take([CHARGE])
        assert proxy.begun == 3
        store.close()


def test_an_unreadable_bucket_keeps_the_connection_and_fails_nobody_who_waits(
    valkey: Server,
) -> None:
    with valkey.client() as client, Proxy(valkey.port) as proxy:
        client.set(WRONG.key, "something else")
        store = RedisStore.from_url(proxy.url, timeout=5, max_connections=1)
        store.take([CHARGE])

        def meet_it() -> None:
            with pytest.raises(BucketUnreadable):
                store.take([WRONG])

        assert taken_by_two(store, meet_it, proxy) == [48]
        assert proxy.begun == 1
        store.close()


def test_connecting_counts_against_the_timeout_of_the_call(
    valkey: Server, monkeypatch: pytest.MonkeyPatch, stalls: Stalls
) -> None:
    deadlines: list[float] = []
    call = Wire.call

    def noted(wire: Wire, command: bytes, deadline: float) -> Any:
        deadlines.append(deadline)
        return call(wire, command, deadline)

    with Proxy(valkey.port) as proxy:
        proxy.latency = 0.5  # for SELECT and for the charge
        store = RedisStore.from_url(f"redis://127.0.0.1:{proxy.port}/1", timeout=5)
        monkeypatch.setattr(Wire, "call", noted)
        began = time.monotonic()
        assert store.take([CHARGE])
        assert deadlines[-1] < began + 5 + 0.4 + stalls.longest
        store.close()


def test_a_slow_connect_shortens_no_later_wait(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request with no time left after connecting gives its good connection away."""
    dial = Dialer.dial

    def slowly(dialer: Dialer, deadline: float | None = None) -> Wire:
        wire = dial(dialer, deadline)
        wire.took = 100.0
        return wire

    monkeypatch.setattr(Dialer, "dial", slowly)
    with Proxy(valkey.port) as proxy:
        store = RedisStore.from_url(proxy.url, timeout=5, max_connections=1)
        with pytest.raises(Connecting, match="connecting took"):
            store.take([CHARGE])
        assert eventually(lambda: proxy.connections == 1)
        assert taken_by_two(store, lambda: store.take([CHARGE]), proxy) == [48]
        assert proxy.begun == 1
        store.close()


def used_and_dropped(url: str) -> None:
    """Make an application, use a connection for charges and one for a reset, and drop it all."""
    app = Flask("dropped")
    app.config.update(BUCKET_REDIS_URL=url, BUCKET_TIMEOUT=10.0)
    limiter = Limiter(app, default_limits=["5/day"])
    app.get("/")(lambda: "fine")
    assert app.test_client().get("/").status_code == 200
    with app.app_context():
        assert limiter.reset("127.0.0.1") == 1


def test_an_application_that_nobody_closes_closes_its_connections(own_server: Server) -> None:
    """There is no warning about an open socket: it would fail this test."""
    used_and_dropped(own_server.url)
    gc.collect()
    with own_server.client() as client:
        assert eventually(lambda: len(client.client_list()) == 1)


def test_open_sockets_of_a_discarded_application_are_no_garbage(valkey: Server) -> None:
    """The garbage collector finalizes what it finds in any order: a socket before its pool."""
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        used_and_dropped(valkey.url)
        gc.collect()
        assert any(type(found) is Flask for found in gc.garbage)
        assert not [found for found in gc.garbage if issubclass(type(found), socket.socket)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.collect()


def test_a_store_that_is_dropped_closes_its_connections_at_once(own_server: Server) -> None:
    store = RedisStore.from_url(own_server.url, timeout=10)
    store.take([CHARGE])
    gc.collect()  # the error that told that the script is unknown, and its frames
    gc.disable()
    try:
        del store
        with own_server.client() as client:
            assert eventually(lambda: len(client.client_list()) == 1)
    finally:
        gc.enable()
