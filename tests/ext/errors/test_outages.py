"""Answers while the store is out of reach, and crashes that are no outage."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from flask_bucket import Decision, Limiter, MemoryStore, RedisStore, StoreUnavailable
from tests.ext.conftest import answer, refused, statuses


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
