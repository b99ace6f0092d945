"""The refusal of a request for which no slot is free."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from flask_bucket import Limiter
from tests.ext.conftest import Clock, answer


@pytest.fixture
def refusal(app: Flask, limiter: Limiter, client: FlaskClient) -> Any:
    """A refusal for want of a slot, half a second after the slot was taken."""
    clock: Clock = limiter._registry.redis._clock  # type: ignore[attr-defined]  # the store's

    @app.get("/")
    @limiter.limit("1 at once", holds=20)
    def view() -> str:
        clock.advance(0.5)
        app.extensions["refusal"] = app.test_client().get("/")
        return "fine"

    app.extensions["allowed"] = client.get("/")
    return app.extensions["refusal"]


def test_a_refused_client_may_ask_again_after_a_second(refusal: Any, clock: Clock) -> None:
    assert refusal.status_code == 429
    assert refusal.json == {"error": "Too Many Requests", "retryAfterMs": 1000}
    headers = refusal.headers
    assert headers["Retry-After"] == "1"
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-RateLimit-Limit"] == "1"
    assert headers["X-RateLimit-Remaining"] == "0"
    assert headers["X-RateLimit-Reset"] == str(clock.now // 1_000_000 + 20)


def test_a_response_that_slots_alone_allowed_has_no_rate_headers(app: Flask, refusal: Any) -> None:
    allowed = app.extensions["allowed"]
    assert allowed.status_code == 200
    assert not [name for name, _ in allowed.headers if "RateLimit" in name]


def test_style_ietf_names_the_unit(app: Flask) -> None:
    app.config["BUCKET_HEADERS"] = ["ietf"]
    limiter = Limiter(app)
    app.add_url_rule("/", "both", limiter.limit("10/second; 5 at once")(answer()))

    @app.get("/one")
    @limiter.limit("1 at once")
    def view() -> str:
        app.extensions["refusal"] = app.test_client().get("/one")
        return "fine"

    headers = app.test_client().get("/").headers
    assert headers["RateLimit-Policy"] == (
        '"per-second";q=10;w=1, "at-once";q=5;qu="concurrent-requests"'
    )
    assert headers["RateLimit"] == '"per-second";r=9;t=1, "at-once";r=4'
    app.test_client().get("/one")
    headers = app.extensions["refusal"].headers
    assert headers["RateLimit-Policy"] == '"at-once";q=1;qu="concurrent-requests"'
    assert headers["RateLimit"] == '"at-once";r=0;t=1'


def test_the_rate_is_told_while_slots_are_left(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("100/second; 2 at once")(answer()))
    assert client.get("/").headers["X-RateLimit-Limit"] == "100"
