"""The limit that a client should hear about, where people look for it."""

from __future__ import annotations

from typing import Any

from flask import Flask
from flask.testing import FlaskClient

from flask_bucket import Decision, Limiter, RateLimitExceeded
from tests.ext.conftest import answer


def test_a_decision_tells_limit_and_remaining_of_the_binding_outcome(
    app: Flask, limiter: Limiter
) -> None:
    with app.app_context():
        decision = limiter.consume("5/second; 2/minute", "alice")
    assert decision.binding is not None
    assert (str(decision.limit), decision.remaining) == ("2/minute", 1)
    assert (decision.limit, decision.remaining) == (
        decision.binding.limit,
        decision.binding.remaining,
    )


def test_a_decision_about_nothing_has_no_limit() -> None:
    assert (Decision(True).limit, Decision(True).remaining) == (None, None)


def test_an_error_tells_limit_and_wait(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    @app.errorhandler(RateLimitExceeded)
    def handle(error: RateLimitExceeded) -> Any:
        return {"limit": str(error.limit), "wait": error.retry_after}, 429

    app.get("/")(limiter.limit("1/minute")(answer()))
    client.get("/")
    assert client.get("/").json == {"limit": "1/minute", "wait": 60}


def test_on_breach_may_read_the_limit_of_its_decision(app: Flask, client: FlaskClient) -> None:
    limiter = Limiter(app, on_breach=lambda decision: (f"only {decision.limit}", 429))
    app.get("/")(limiter.limit("1/minute")(answer()))
    client.get("/")
    assert client.get("/").text == "only 1/minute"
