"""How long blocks, and functions within a view, hold a slot."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from flask_bucket import Limiter, RateLimitExceeded
from tests.ext.conftest import CountingStore, in_use, nested


def test_a_block_holds_a_slot_while_it_runs(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    def view() -> Any:
        with limiter.limit("2 at once", scope="export"):
            held = in_use(buckets)
        return [held, in_use(buckets)]

    assert client.get("/").json == [1, 0]
    assert buckets.calls == ["take", "settle"]


def test_a_block_that_fails_gives_its_slot_back(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    def view() -> Any:
        with pytest.raises(LookupError), limiter.limit("2 at once", scope="export"):
            raise LookupError
        return [in_use(buckets)]

    assert client.get("/").json == [0]


def test_an_inner_block_does_not_free_the_outer_one(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    block = limiter.limit("1 at once", scope="export")

    @app.get("/")
    def view() -> Any:
        with block:
            with block:
                inner = in_use(buckets)
            return [inner, in_use(buckets)]

    assert client.get("/").json == [1, 1]
    assert in_use(buckets) == 0


def test_a_block_does_not_free_what_its_view_holds(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    @limiter.limit("1 at once", scope="export")
    def view() -> Any:
        with limiter.limit("1 at once", scope="export"):
            pass
        return [in_use(buckets)]

    assert client.get("/").json == [1]
    assert in_use(buckets) == 0


def test_a_block_that_is_refused_leaves_the_view_to_answer(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    @limiter.limit("5/minute; 5 at once")
    def view() -> Any:
        try:
            with limiter.limit("1 at once", scope="export"):
                return nested(app)()
        except RateLimitExceeded:
            return [in_use(buckets)]  # both requests', and the outer one's block

    assert client.get("/?deep=2").json == [200, 3]
    assert in_use(buckets) == 0


def test_a_function_that_a_view_calls_twice_holds_one_slot_until_the_answer(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    export: Any = limiter.limit("1 at once")(lambda: in_use(buckets))
    app.get("/")(lambda: [export(), export()])
    assert client.get("/").json == [1, 1]
    assert in_use(buckets) == 0


def test_a_block_outside_of_a_request_is_not_limited(limiter: Limiter) -> None:
    with limiter.limit("1 at once", scope="export"), limiter.limit("1 at once", scope="export"):
        pass
