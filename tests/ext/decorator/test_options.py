"""The options of ``@limiter.limit``."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask, request
from flask.testing import FlaskClient

from flask_bucket import Limiter, limit_exceeded
from tests.ext.conftest import Clock, answer, remaining, statuses


def test_a_cost_is_a_number_or_a_function(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.add_url_rule("/a", "a", limiter.limit("10/minute", cost=4)(answer()))
    by_length = limiter.limit("10/minute", cost=lambda: int(request.args["n"]))(answer())
    app.add_url_rule("/b", "b", by_length)
    assert [remaining(client, "/a"), remaining(client, "/a")] == [6, 2]
    assert [remaining(client, "/b?n=3"), remaining(client, "/b?n=7")] == [7, 0]


def test_exempt_when_leaves_out_one_limit(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    @app.get("/")
    @limiter.limit("3/minute")
    @limiter.limit("1/hour", exempt_when=lambda: "staff" in request.args)
    def view() -> str:
        return "fine"

    assert statuses(client, "/?staff", 4) == [200, 200, 200, 429]


def test_error_message_is_a_text_or_a_function(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    text = limiter.limit("1/minute", error_message="Slow down.")(answer())
    function = limiter.limit("1/minute", error_message=lambda: f"Not {request.path}.")(answer())
    app.add_url_rule("/a", "a", text)
    app.add_url_rule("/b", "b", function)
    statuses(client, "/a", 1), statuses(client, "/b", 1)
    assert client.get("/a").json == {"error": "Slow down.", "retryAfterMs": 60_000}
    assert client.get("/b").json == {"error": "Not /b.", "retryAfterMs": 60_000}


def test_an_error_message_may_be_translated_late(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    class Lazy:
        def __str__(self) -> str:
            return "Langsamer."

    lazy: Any = Lazy
    app.add_url_rule("/a", "a", limiter.limit("1/minute", error_message=lazy)(answer()))
    client.get("/a")
    assert client.get("/a").json == {"error": "Langsamer.", "retryAfterMs": 60_000}


def test_a_dry_run_limit_reports_and_refuses_nothing(
    app: Flask, limiter: Limiter, client: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[bool] = []
    app.get("/")(limiter.limit("1/minute", dry_run=True)(answer()))

    def note(sender: Flask, limiter: Limiter, decision: Any) -> None:
        told.append(next(o.allowed for o in decision.outcomes if o.shadow))

    with limit_exceeded.connected_to(note, app), caplog.at_level("INFO", "flask_bucket"):
        responses = [client.get("/") for _ in range(3)]
    assert [r.status_code for r in responses] == [200, 200, 200]
    assert told == [False, False]
    assert not any("X-RateLimit-Limit" in r.headers for r in responses)
    assert [r.getMessage() for r in caplog.records] == [
        "Dry run: 1/minute would have refused a request."
    ]


def test_a_dry_run_limit_takes_nothing_from_a_refused_request(
    app: Flask, limiter: Limiter, client: FlaskClient, clock: Clock
) -> None:
    seen: list[int] = []

    @app.get("/")
    @limiter.limit("5/minute burst 5", dry_run=True)
    @limiter.limit("1/second")
    def view() -> str:
        assert limiter.current is not None
        seen.append(limiter.current.outcomes[-1].remaining)
        return "fine"

    assert statuses(client, "/", 3) == [200, 429, 429]
    clock.advance(1)
    assert statuses(client, "/", 1) == [200]
    assert seen == [4, 3]


def test_a_refusal_beside_a_dry_run_refusal_is_told_once(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    told: list[Any] = []
    view = limiter.limit("1/minute", dry_run=True)(limiter.limit("1/hour")(answer()))
    app.get("/")(view)

    def note(sender: Flask, **told_of: Any) -> None:
        told.append(told_of["decision"])

    with limit_exceeded.connected_to(note, app):
        assert statuses(client, "/", 2) == [200, 429]
    assert len(told) == 1
