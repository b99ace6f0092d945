"""Kinds of views that are limited at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Semaphore

from flask import Blueprint, Flask
from flask.testing import FlaskClient

from flask_bucket import Limiter
from tests.ext.at_once.conftest import at_once
from tests.ext.conftest import CountingStore, in_use, nested


def test_a_blueprint_s_requests_are_limited_at_once(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    blueprint = Blueprint("api", __name__)
    limiter.limit("1 at once")(blueprint)
    blueprint.get("/")(nested(app))
    app.register_blueprint(blueprint)
    assert at_once(client, 2) == [200, 429]
    assert in_use(buckets) == 0


def test_an_async_view_holds_a_slot_while_it_runs(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    @limiter.limit("2 at once")
    async def view() -> list[int]:
        with limiter.limit("1 at once", scope="block"):
            return [in_use(buckets)]

    assert client.get("/").json == [2]
    assert in_use(buckets) == 0


def test_of_requests_that_come_together_no_more_are_allowed_than_there_are_slots(
    app: Flask, limiter: Limiter, buckets: CountingStore
) -> None:
    came, answered = Barrier(10), Semaphore(0)

    @app.get("/")
    @limiter.limit("3 at once")
    def view() -> str:
        answered.acquire()
        return "fine"

    def ask() -> int:
        came.wait()
        status = app.test_client().get("/").status_code
        if status == 429:
            refused.append(status)
            if len(refused) == 7:
                answered.release(3)
        return status

    refused: list[int] = []
    with ThreadPoolExecutor(10) as pool:
        got = [pool.submit(ask) for _ in range(10)]
    assert sorted(future.result() for future in got) == [200] * 3 + [429] * 7
    assert in_use(buckets) == 0
