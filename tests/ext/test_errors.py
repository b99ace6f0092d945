"""What a refused client is answered, and who may change that."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Blueprint, Flask, Response, abort, jsonify
from flask.testing import FlaskClient
from werkzeug.exceptions import HTTPException, TooManyRequests

from flask_bucket import (
    Decision,
    Limiter,
    MemoryStore,
    RateLimitExceeded,
    RedisStore,
    StoreUnavailable,
)
from tests.ext.conftest import Clock, CountingStore, answer, refused, statuses


@pytest.fixture
def limited(app: Flask, limiter: Limiter, client: FlaskClient) -> FlaskClient:
    """A client whose one request a half minute, of its only view, is spent."""
    app.add_url_rule("/", "v", limiter.limit("2/minute", cost=2)(answer()))
    return client


def test_a_refusal_is_a_small_json_document(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("2/second")(answer()))
    response = refused(client)
    assert response.status_code == 429
    assert response.content_type == "application/json"
    assert response.json == {"error": "Too Many Requests", "retryAfterMs": 500}
    assert response.headers["Retry-After"] == "1"
    assert response.headers["Cache-Control"] == "no-store"


def test_retry_after_ms_is_rounded_up(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    app.get("/")(limiter.limit("3/second")(answer()))
    assert refused(client).json["retryAfterMs"] == 334


def problem_app(buckets: CountingStore) -> tuple[Flask, Limiter, FlaskClient]:
    app = Flask("problems")
    app.config["BUCKET_ERROR_FORMAT"] = "problem"
    return app, Limiter(app, redis=buckets), app.test_client()


def test_a_refusal_may_be_a_problem_of_rfc_9457(buckets: CountingStore) -> None:
    app, limiter, client = problem_app(buckets)
    app.get("/")(limiter.limit("1/minute; 9/hour; 1/day")(answer()))
    response = refused(client)
    assert response.content_type == "application/problem+json"
    assert response.json == {
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Too Many Requests",
        "status": 429,
        "detail": "Try again in 86400 s.",
        "violated-policies": ["per-minute", "per-day"],
    }


def test_a_problem_that_waiting_does_not_solve_says_so(buckets: CountingStore) -> None:
    app, limiter, client = problem_app(buckets)
    app.get("/")(limiter.limit("1/minute", cost=2)(answer()))
    response = refused(client)
    assert response.json["detail"] == "Nothing will change that."
    assert "Retry-After" not in response.headers


def test_an_error_message_is_the_detail_of_a_problem(buckets: CountingStore) -> None:
    app, limiter, client = problem_app(buckets)
    app.get("/")(limiter.limit("1/minute", error_message="One search a minute.")(answer()))
    assert refused(client).json["detail"] == "One search a minute."


def test_a_dry_run_limit_is_no_violated_policy(buckets: CountingStore) -> None:
    app, limiter, client = problem_app(buckets)
    dry = limiter.limit("1/hour", dry_run=True)
    app.get("/")(dry(limiter.limit("1/minute")(answer())))
    assert refused(client).json["violated-policies"] == ["per-minute"]


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


# on_breach.


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


# Outages.


def unreachable(policy: str) -> tuple[Flask, Limiter, FlaskClient]:
    app = Flask("unreachable")
    app.config.update(BUCKET_ON_ERROR=policy, BUCKET_REDIS_URL="redis://127.0.0.1:1/0")
    return app, Limiter(app), app.test_client()


def test_an_outage_refused_is_a_503_without_rate_headers() -> None:
    app, limiter, client = unreachable("deny")
    app.get("/")(limiter.limit("9/minute")(answer()))
    response = refused(client)
    assert response.status_code == 503
    assert response.json["error"] == "Service Unavailable"
    assert response.headers["Retry-After"] == "1"
    assert response.headers["Cache-Control"] == "no-store"
    assert "X-RateLimit-Limit" not in response.headers


def test_an_outage_refused_may_be_a_problem() -> None:
    app = Flask("unreachable")
    app.config.update(
        BUCKET_ON_ERROR="deny",
        BUCKET_REDIS_URL="redis://127.0.0.1:1/0",
        BUCKET_ERROR_FORMAT="problem",
    )
    limiter = Limiter(app)
    app.get("/")(limiter.limit("9/minute")(answer()))
    response = app.test_client().get("/")
    assert response.content_type == "application/problem+json"
    assert response.json is not None
    assert response.json["type"].endswith("#temporary-reduced-capacity")
    assert response.json["status"] == 503


def test_an_answer_of_on_breach_carries_its_code(app: Flask, limiter: Limiter) -> None:
    """Frameworks that answer errors themselves read it."""
    view = limiter.limit("1/minute", on_breach=lambda decision: ("no", 418))(answer())
    app.add_url_rule("/", "v", view)
    with app.test_request_context("/"):
        view()
        with pytest.raises(HTTPException) as raised:
            view()
    assert raised.value.code == 418


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


@pytest.mark.parametrize("what", [503, StoreUnavailable])
def test_an_error_handler_for_503_answers_for_an_outage(what: Any) -> None:
    app, limiter, client = unreachable("deny")
    app.register_error_handler(what, lambda error: ("back soon", 503))
    app.get("/")(limiter.limit("9/minute")(answer()))
    response = client.get("/")
    assert (response.status_code, response.text) == (503, "back soon")
    assert response.headers["Retry-After"] == "1"


def test_an_outage_allowed_has_no_rate_headers() -> None:
    app, limiter, client = unreachable("allow")
    app.get("/")(limiter.limit("1/minute", deduct_when=lambda response: False)(answer()))
    assert statuses(client, "/", 3) == [200] * 3
    assert "X-RateLimit-Limit" not in client.get("/").headers


def test_a_crashing_callable_is_no_outage(app: Flask, caplog: pytest.LogCaptureFixture) -> None:
    class Guarded(RedisStore):
        """Passes for a store that can be out of reach, and never is."""

        def take(self, *args: Any, **options: Any) -> Decision:
            return memory.take(*args, **options)

    memory = MemoryStore()
    limiter = Limiter(app, redis=Guarded.from_url("redis://127.0.0.1:1/0"))

    def crash() -> Any:
        raise ConnectionError("the user's own database")

    limits = {
        "key": limiter.limit("9/minute", key_func=crash),
        "rule": limiter.limit(crash),
        "cost": limiter.limit("9/minute", cost=crash),
        "exempt": limiter.limit("9/minute", exempt_when=crash),
    }
    for name, limit in limits.items():
        app.add_url_rule(f"/{name}", name, limit(answer()))
    app.add_url_rule("/well", "well", limiter.limit("1/minute")(answer()))
    client = app.test_client()
    for name in limits:
        assert statuses(client, f"/{name}", 2) == [500, 500]
    assert statuses(client, "/well", 2) == [200, 429]
    assert not [record for record in caplog.records if record.name == "flask_bucket"]


def test_errors_in_a_blueprint_reach_its_handlers_first(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    bp = Blueprint("bp", __name__)
    bp.add_url_rule("/", "v", limiter.limit("1/minute")(answer()))
    bp.register_error_handler(RateLimitExceeded, lambda error: ("of the blueprint", 429))
    app.register_error_handler(429, lambda error: ("of the application", 429))
    app.register_blueprint(bp)
    assert refused(client).text == "of the blueprint"
