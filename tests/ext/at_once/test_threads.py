"""Threads and contexts that hold and give back slots."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any

import pytest
from flask import Flask, copy_current_request_context
from flask.signals import request_tearing_down
from flask.testing import FlaskClient

from flask_bucket import Limiter
from flask_bucket.bodies import Watched
from tests.ext.conftest import CountingStore, answer, in_use


def test_threads_that_share_a_block_s_limit_hold_a_slot_each(
    app: Flask, limiter: Limiter, buckets: CountingStore
) -> None:
    block, together = limiter.limit("3 at once", scope="block"), Barrier(3)

    @app.get("/")
    def view() -> list[int]:
        with block:
            together.wait()
            held = in_use(buckets)
            together.wait()
        return [held]

    with ThreadPoolExecutor(3) as pool:
        got = [pool.submit(lambda: app.test_client().get("/").json) for _ in range(3)]
    assert [future.result() for future in got] == [[3]] * 3
    assert in_use(buckets) == 0


@pytest.mark.parametrize("same_thread", [True, False])
def test_a_thread_with_a_copy_of_the_request_does_not_free_its_slot(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore, same_thread: bool
) -> None:
    @app.get("/")
    @limiter.limit("1 at once")
    def view() -> list[int]:
        work: Any = copy_current_request_context(lambda: in_use(buckets))
        if same_thread:
            return [work(), in_use(buckets)]
        with ThreadPoolExecutor(1) as pool:
            return [pool.submit(work).result(), in_use(buckets)]

    assert client.get("/").json == [1, 1]
    assert in_use(buckets) == 0


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads that interrupt each other nearly everywhere."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
def test_threads_of_one_request_give_back_all_that_their_blocks_held(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    def view() -> list[int]:
        def work(n: int) -> None:
            for _ in range(50):
                with limiter.limit("9 at once", scope=f"query-{n}"):
                    pass

        with ThreadPoolExecutor(8) as pool:
            working = [pool.submit(copy_current_request_context(work), n) for n in range(8)]
        for future in working:
            future.result()
        return [in_use(buckets)]

    assert [client.get("/").json for _ in range(5)] == [[0]] * 5


@pytest.mark.parametrize("kind", ["block", "function"])
def test_a_copy_of_the_request_that_asks_first_frees_no_slot_of_the_others(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore, kind: str
) -> None:
    """The copy is torn down while the request is in a block."""
    asked, done = Event(), Event()

    @app.get("/")
    def view() -> list[int]:
        @copy_current_request_context
        def work() -> None:
            if kind == "function":
                limiter.limit("9 at once")(answer())()
            else:
                with limiter.limit("9 at once", scope="lookup"):
                    pass
            asked.set()
            done.wait()

        with ThreadPoolExecutor(1) as pool:
            working = pool.submit(work)
            asked.wait()
            before = in_use(buckets)
            with limiter.limit("1 at once", scope="query"):
                done.set()
                working.result()
                within = in_use(buckets)
        return [before, within, in_use(buckets)]

    asked_for = 1 if kind == "function" else 0
    assert client.get("/").json == [asked_for, asked_for + 1, asked_for]
    assert in_use(buckets) == 0


def test_a_thread_that_goes_on_after_its_request_gives_back_what_it_asks_for(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    @limiter.limit("5 at once", scope="view")
    def view() -> str:
        later.append(copy_current_request_context(limiter.limit("5 at once")(seen)))
        return "fine"

    def seen() -> int:
        return in_use(buckets)

    later: list[Any] = []
    client.get("/")
    assert in_use(buckets) == 0
    assert (later[0](), in_use(buckets)) == (1, 0)


# Contexts that are made by hand.


def test_contexts_are_watched_only_once_one_that_was_made_by_hand_asks_for_a_slot(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.add_url_rule("/", "slot", limiter.limit("5 at once")(answer()))
    client.get("/")
    assert not list(request_tearing_down.receivers_for(app))
    for _ in range(2):
        with app.test_request_context():
            app.dispatch_request()
            assert in_use(buckets) == 1
        assert in_use(buckets) == 0
    assert len(list(request_tearing_down.receivers_for(app))) == 1


def test_a_copy_of_a_context_that_was_made_by_hand_frees_nothing(
    app: Flask, limiter: Limiter, buckets: CountingStore
) -> None:
    app.get("/")(limiter.limit("5 at once")(answer()))
    with app.test_request_context():
        app.dispatch_request()
        copy_current_request_context(answer())()
        assert in_use(buckets) == 1
    assert in_use(buckets) == 0


def test_several_limiters_watch_an_application_once() -> None:
    app = Flask("app")
    for name in ("one", "two"):
        Limiter(app, name=name)
    assert isinstance(app.wsgi_app, Watched)
    assert not isinstance(app.wsgi_app.wsgi_app, Watched)
