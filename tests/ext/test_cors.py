"""Cross-origin requests with the real flask-cors."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from flask_cors import CORS, cross_origin

from flask_bucket import Limiter
from tests.ext.conftest import CountingStore, answer, statuses

ORIGIN = {"Origin": "https://shop.example"}
PREFLIGHT: dict[str, Any] = {
    "method": "OPTIONS",
    "headers": ORIGIN | {"Access-Control-Request-Method": "GET"},
}
EXPOSED = ["Retry-After", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"]


@pytest.fixture
def shop(app: Flask, buckets: CountingStore) -> Limiter:
    return Limiter(app, redis=buckets, application_limits=["9/minute"], default_limits=["2/minute"])


def test_preflights_are_never_limited(
    app: Flask, shop: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    CORS(app)
    app.add_url_rule("/default", "default", answer())
    app.add_url_rule("/own", "own", shop.limit("2/minute")(answer()))
    for path in ("/default", "/own"):
        assert statuses(client, path, 12, **PREFLIGHT) == [200] * 12
    assert buckets.calls == []
    assert statuses(client, "/own", 3, headers=ORIGIN) == [200, 200, 429]


def test_preflights_that_a_decorator_above_the_limit_answers_are_free(
    app: Flask, shop: Limiter, client: FlaskClient
) -> None:
    app.add_url_rule("/", "v", cross_origin()(shop.limit("2/minute")(answer())))
    assert statuses(client, "/", 5, **PREFLIGHT) == [200] * 5
    assert statuses(client, "/", 3, headers=ORIGIN) == [200, 200, 429]


def test_preflights_that_reach_a_limit_are_charged(
    app: Flask, shop: Limiter, client: FlaskClient
) -> None:
    app.add_url_rule("/", "v", shop.limit("2/minute")(cross_origin()(answer())))
    assert statuses(client, "/", 3, **PREFLIGHT) == [200, 200, 429]


@pytest.mark.parametrize("header", [{}, PREFLIGHT["headers"]], ids=["plain", "preflight"])
def test_no_header_exempts_a_view_that_serves_options_itself(
    app: Flask, shop: Limiter, client: FlaskClient, header: dict[str, str]
) -> None:
    view = shop.limit("3/hour")(answer())
    app.add_url_rule("/login", "login", view, methods=["POST", "OPTIONS"])
    assert statuses(client, "/login", 5, method="OPTIONS", headers=header) == [200] * 3 + [429] * 2


def test_a_limit_for_some_methods_leaves_preflights_out(
    app: Flask, shop: Limiter, client: FlaskClient
) -> None:
    view = shop.limit("2/minute", methods=["GET"])(cross_origin()(answer()))
    app.add_url_rule("/", "v", view)
    assert statuses(client, "/", 5, **PREFLIGHT) == [200] * 5


def test_a_refusal_can_be_read_by_the_page(app: Flask, shop: Limiter, client: FlaskClient) -> None:
    CORS(app, expose_headers=EXPOSED)
    app.add_url_rule("/", "v", shop.limit("1/minute")(answer()))
    for status in (200, 429):
        response = client.get("/", headers=ORIGIN)
        assert response.status_code == status
        assert response.headers["Access-Control-Allow-Origin"] in ("*", ORIGIN["Origin"])
        exposed = response.headers["Access-Control-Expose-Headers"].split(", ")
        assert sorted(exposed) == EXPOSED
        assert set(EXPOSED[1:]) <= set(response.headers.keys())
