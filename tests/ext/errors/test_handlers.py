"""Error handlers of the application, and refusals."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Blueprint, Flask, Response, abort, jsonify
from flask.testing import FlaskClient
from werkzeug.exceptions import HTTPException, TooManyRequests

from flask_bucket import Limiter, RateLimitExceeded
from tests.ext.conftest import answer, refused


@pytest.fixture
def limited(app: Flask, limiter: Limiter, client: FlaskClient) -> FlaskClient:
    """A client that has used up its one request per half minute."""
    app.add_url_rule("/", "v", limiter.limit("2/minute", cost=2)(answer()))
    return client


# Error handlers.


@pytest.mark.parametrize("what", [429, TooManyRequests, RateLimitExceeded, HTTPException])
def test_an_error_handler_takes_over_the_body_and_the_headers_come_all_the_same(
    app: Flask, limited: FlaskClient, what: Any
) -> None:
    def handle(error: RateLimitExceeded) -> tuple[Response, int]:
        outcome = error.decision.binding
        assert outcome is not None
        return jsonify(limit=str(outcome.limit), wait=error.decision.retry_after), 429

    app.register_error_handler(what, handle)
    response = refused(limited)
    assert response.json == {"limit": "2/minute", "wait": 60.0}
    assert response.headers["Retry-After"] == "60"
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["X-RateLimit-Remaining"] == "0"


def test_an_error_handler_may_answer_with_another_status(app: Flask, limited: FlaskClient) -> None:
    app.register_error_handler(429, lambda error: ("busy", 503))
    response = refused(limited)
    assert (response.status_code, response.text) == (503, "busy")
    assert response.headers["Retry-After"] == "60"


def test_an_error_handler_may_return_the_error_itself(app: Flask, limited: FlaskClient) -> None:
    app.register_error_handler(HTTPException, lambda error: error)
    assert refused(limited).json == {"error": "Too Many Requests", "retryAfterMs": 60_000}


def test_a_handler_of_every_exception_sees_refusals_like_any_http_error(
    app: Flask, limited: FlaskClient
) -> None:
    app.register_error_handler(Exception, lambda error: (type(error).__name__, 429))
    assert refused(limited).text == "RateLimitExceeded"


def test_a_handler_of_other_errors_sees_no_refusals(app: Flask, limited: FlaskClient) -> None:
    app.register_error_handler(500, lambda error: ("crashed", 500))
    app.register_error_handler(404, lambda error: ("lost", 404))
    assert refused(limited).status_code == 429


def test_a_views_own_429_is_left_alone(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    def view() -> str:
        abort(429, "of its own")

    app.get("/")(limiter.limit("9/minute")(view))
    response = client.get("/")
    assert response.status_code == 429
    assert "Retry-After" not in response.headers
    assert response.headers["X-RateLimit-Remaining"] == "8"


def test_an_error_handler_for_500_answers_for_a_crashing_key_function(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.register_error_handler(500, lambda error: (type(error.original_exception).__name__, 500))
    app.get("/")(limiter.limit("9/minute", key_func=lambda: str(1 / 0))(answer()))
    response = client.get("/")
    assert (response.status_code, response.text) == (500, "ZeroDivisionError")


@pytest.mark.parametrize("status", [200, 429])
def test_a_decorator_that_catches_a_refusal_has_the_last_word(
    app: Flask, limiter: Limiter, client: FlaskClient, status: int
) -> None:
    limited = limiter.limit("1/minute", on_breach=lambda decision: ("no", status))(answer())

    @app.get("/")
    def view() -> tuple[str, int]:
        try:
            return str(limited()), 200
        except HTTPException:
            return "another page", status

    assert client.get("/").text == "fine"
    assert client.get("/").text == "another page"


def test_errors_in_a_blueprint_reach_its_handlers_first(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    bp = Blueprint("bp", __name__)
    bp.add_url_rule("/", "v", limiter.limit("1/minute")(answer()))
    bp.register_error_handler(RateLimitExceeded, lambda error: ("of the blueprint", 429))
    app.register_error_handler(429, lambda error: ("of the application", 429))
    app.register_blueprint(bp)
    assert refused(client).text == "of the blueprint"
