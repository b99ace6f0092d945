"""The answer to a refused client."""

from __future__ import annotations

import json

import pytest
from flask import Flask
from flask.testing import FlaskClient

from flask_bucket import Limiter
from tests.ext.conftest import CountingStore, answer, refused


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


@pytest.mark.parametrize(("cost", "wait"), [(1, 500), (3, None)])
def test_the_document_is_spelled_as_json_dumps_spells_it(
    app: Flask, limiter: Limiter, client: FlaskClient, cost: int, wait: int | None
) -> None:
    text = 'Too "fast" für uns\n'
    app.get("/")(limiter.limit("2/second", cost=cost, error_message=text)(answer()))
    assert refused(client).text == json.dumps({"error": text, "retryAfterMs": wait}) + "\n"


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
