"""The answers of on_breach."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask, Response, abort
from flask.testing import FlaskClient
from werkzeug.exceptions import HTTPException

from flask_bucket import Decision, Limiter
from tests.ext.conftest import Clock, CountingStore, answer, refused


def test_on_breach_may_return_nothing(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    told: list[Decision] = []
    app.get("/")(limiter.limit("1/minute", on_breach=told.append)(answer()))
    assert refused(client).json["error"] == "Too Many Requests"
    assert [bool(decision) for decision in told] == [False]


@pytest.mark.parametrize("handled", [False, True])
@pytest.mark.parametrize(
    "given", [Response("no", 418), ("no", 418), ("no", 418, {"X-Why": "limit"})]
)
def test_on_breach_may_return_what_a_view_may(
    app: Flask, limiter: Limiter, client: FlaskClient, given: Any, handled: bool
) -> None:
    if handled:
        for what in (429, HTTPException, Exception):
            app.register_error_handler(what, lambda error: ("by the handler", 429))
    app.get("/")(limiter.limit("1/minute", on_breach=lambda decision: given)(answer()))
    response = refused(client)
    assert (response.status_code, response.text) == (418, "no")
    assert response.headers["Retry-After"] == "60"
    assert response.headers["X-RateLimit-Remaining"] == "0"
    assert response.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("given", [["slow", "down"], {"slow": "down"}, "slow down", b"slow down"])
def test_a_body_alone_from_on_breach_is_a_429(
    app: Flask, limiter: Limiter, client: FlaskClient, given: Any
) -> None:
    app.get("/")(limiter.limit("1/minute", on_breach=lambda decision: given)(answer()))
    assert refused(client).status_code == 429


def test_on_breach_of_none_leaves_it_to_the_error_handler(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.register_error_handler(429, lambda error: ("by the handler", 429))
    app.get("/")(limiter.limit("1/minute", on_breach=lambda decision: None)(answer()))
    assert refused(client).text == "by the handler"


def test_on_breach_of_a_rule_goes_before_that_of_the_limiter(
    app: Flask, buckets: CountingStore
) -> None:
    def by(name: str) -> Any:
        return lambda decision: Response(name, 429)

    limiter = Limiter(app, redis=buckets, on_breach=by("limiter"), default_limits=["1/minute"])
    app.add_url_rule("/d", "d", answer())
    app.add_url_rule("/v", "v", limiter.limit("1/minute", on_breach=by("rule"))(answer()))
    client = app.test_client()
    assert [refused(client, path).text for path in ("/d", "/v")] == ["limiter", "rule"]


def test_on_breach_and_the_message_are_those_of_the_limit_that_refused(
    app: Flask, limiter: Limiter, client: FlaskClient, clock: Clock
) -> None:
    @app.get("/")
    @limiter.limit("1/second", error_message="Too fast.")
    @limiter.limit("2/hour", error_message="Too many.")
    def view() -> str:
        return "fine"

    client.get("/")
    assert refused(client).json["error"] == "Too fast."
    clock.advance(1)
    client.get("/")
    assert refused(client).json["error"] == "Too many."


def test_on_breach_may_abort_or_crash_on_its_own(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    crash = limiter.limit("1/minute", on_breach=lambda decision: Response(str(1 / 0)))(answer())
    app.add_url_rule("/abort", "abort", limiter.limit("1/minute", on_breach=gone)(answer()))
    app.add_url_rule("/crash", "crash", crash)
    assert [refused(client, path).status_code for path in ("/abort", "/crash")] == [410, 500]


def gone(decision: Decision) -> Response:
    abort(410)


def test_an_answer_of_on_breach_carries_its_code(app: Flask, limiter: Limiter) -> None:
    """Frameworks that answer errors themselves read it."""
    view = limiter.limit("1/minute", on_breach=lambda decision: ("no", 418))(answer())
    app.add_url_rule("/", "v", view)
    with app.test_request_context("/"):
        view()
        with pytest.raises(HTTPException) as raised:
            view()
    assert raised.value.code == 418
