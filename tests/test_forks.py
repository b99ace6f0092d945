"""A fork at any moment leaves the child with locks and caches of its own."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask

from flask_bucket import Charge, Limit, Limiter, MemoryStore
from flask_bucket.stores.base import Store
from flask_bucket.stores.breaker import Breaker
from flask_bucket.stores.outage import OutageStore
from flask_bucket.stores.redis import RedisStore
from flask_bucket.stores.refusals import RefusalStore
from tests.servers import Server

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")

CHARGE = Charge(Limit.parse("5/day"), "bucket:{alice}:page:per-day")


def in_child(check: Callable[[], bool]) -> bool:
    """Fork, and return what a check says in the child; False if it takes long."""
    pid = os.fork()
    if pid == 0:
        threading.Timer(20, os._exit, [1]).start()
        try:
            os._exit(0 if check() else 1)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("kind", ["memory", "refusals", "breaker"])
def test_a_lock_that_was_held_at_a_fork_is_free_in_the_child(kind: str) -> None:
    memory = MemoryStore()
    refusals = RefusalStore(memory, 10)
    breaker = Breaker(1)
    watched: Any = {"memory": memory, "refusals": refusals, "breaker": breaker}[kind]
    with watched._lock:
        if kind == "breaker":
            assert in_child(lambda: breaker.health().state == "ok")
        else:
            assert in_child(lambda: bool(refusals.take([CHARGE])))


def test_an_in_process_store_is_empty_in_a_forked_child() -> None:
    store = MemoryStore()
    store.take([CHARGE])
    assert in_child(lambda: len(store) == 0)
    assert len(store) == 1


def test_refusals_are_forgotten_in_a_forked_child() -> None:
    memory = MemoryStore()
    store = RefusalStore(memory, 10)
    for _ in range(6):
        store.take([CHARGE])
    assert store.take([CHARGE]).cached
    # The child's in-process store begins full.
    assert in_child(lambda: bool(store.take([CHARGE])))


@pytest.fixture(params=["memory", "redis", "unreachable"])
def app(request: pytest.FixtureRequest, valkey: Server) -> Iterator[Flask]:
    """An application that starts a process from a view, while four threads are busy."""
    made = Flask("forking")
    made.config["BUCKET_TIMEOUT"] = 5.0
    urls = {"memory": None, "redis": valkey.url, "unreachable": "redis://127.0.0.1:1/0"}
    limiter = Limiter(made, redis=urls[request.param], default_limits=["1000000/day"])

    @made.get("/busy")
    def busy() -> str:
        return "busy"

    @made.get("/fork")
    def fork() -> tuple[str, int]:
        def child() -> None:
            with made.app_context():
                limiter.consume("9/day", "child")
                made.test_client().get("/busy")

        process = multiprocessing.get_context("fork").Process(target=child, daemon=True)
        process.start()
        process.join(20)
        if process.exitcode is None:
            process.kill()
        return "forked", 200 if process.exitcode == 0 else 500

    yield made
    made.extensions["flask_bucket"]["bucket"].store.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_view_may_start_a_process_beside_busy_threads(app: Flask) -> None:
    stop = threading.Event()

    def work() -> None:
        client = app.test_client()
        while not stop.is_set():
            client.get("/busy")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        assert [app.test_client().get("/fork").status_code for _ in range(15)] == [200] * 15
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_store_of_a_server_works_in_parent_and_child(valkey: Server) -> None:
    store: Store = OutageStore(RedisStore.from_url(valkey.url, timeout=5))
    assert store.take([CHARGE]).outcomes[0].remaining == 4
    assert in_child(lambda: store.take([CHARGE]).outcomes[0].remaining == 3)
    assert store.take([CHARGE]).outcomes[0].remaining == 2
    store.close()
