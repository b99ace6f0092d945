"""The rate headers and Retry-After, of the binding limit, on every limited response."""

from __future__ import annotations

import pytest
from flask import Flask, Response
from flask.testing import FlaskClient

from flask_bucket import Limiter
from tests.ext.conftest import Clock, CountingStore, answer
from tests.ext.headers.conftest import NOW, x_headers


def test_a_limited_response_tells_capacity_remaining_and_reset(
    app: Flask, limiter: Limiter, client: FlaskClient, clock: Clock
) -> None:
    app.get("/")(limiter.limit("5/second burst 20", cost=5)(answer()))
    assert x_headers(client.get("/")) == ["20", "15", str(NOW + 1)]
    assert x_headers(client.get("/")) == ["20", "10", str(NOW + 2)]
    clock.advance(100)
    assert x_headers(client.get("/")) == ["20", "15", str(NOW + 101)]


def test_reset_is_rounded_up_on_the_stores_clock(
    app: Flask, limiter: Limiter, client: FlaskClient, clock: Clock
) -> None:
    app.get("/")(limiter.limit("10/second")(answer()))
    clock.advance(0.25)
    assert x_headers(client.get("/"))[2] == str(NOW + 1)
    clock.advance(0.65)
    assert x_headers(client.get("/"))[2] == str(NOW + 1)
    assert x_headers(client.get("/"))[2] == str(NOW + 2)


def test_an_unlimited_response_has_none(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    app.get("/")(answer())
    assert x_headers(client.get("/")) == [None] * 3


def test_of_several_limits_the_one_with_the_fewest_remaining_is_told(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("100/hour; 5/second; 50/minute")(answer()))
    assert x_headers(client.get("/"))[:2] == ["5", "4"]


def test_of_a_refusal_the_longest_wait_is_told(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("1/second; 1/hour; 100/day")(answer()))
    client.get("/")
    refused = client.get("/")
    assert x_headers(refused) == ["1", "0", str(NOW + 3600)]
    assert refused.headers["Retry-After"] == "3600"


def test_over_two_points_the_tighter_limit_is_told(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets, application_limits=["3/minute"])
    app.add_url_rule("/wide", "wide", limiter.limit("9/minute")(answer()))
    app.add_url_rule("/tight", "tight", limiter.limit("1/minute")(answer()))
    client = app.test_client()
    assert x_headers(client.get("/wide"))[:2] == ["3", "2"]
    assert x_headers(client.get("/tight"))[:2] == ["1", "0"]
    assert x_headers(client.get("/tight"))[:2] == ["1", "0"]
    assert x_headers(client.get("/wide"))[:2] == ["3", "0"]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_refusals_carry_the_headers_for_every_method(
    app: Flask, limiter: Limiter, client: FlaskClient, method: str
) -> None:
    app.get("/")(limiter.limit("1/minute")(answer()))
    client.get("/")
    refused = client.open("/", method=method)
    assert x_headers(refused)[:2] == ["1", "0"]
    assert refused.headers["Retry-After"] == "60"
    assert refused.headers["Cache-Control"] == "no-store"
    assert (refused.data == b"") == (method == "HEAD")


def test_error_responses_carry_the_headers(app: Flask, buckets: CountingStore) -> None:
    Limiter(app, redis=buckets, application_limits=["9/minute"])
    app.get("/")(answer())
    app.add_url_rule("/crash", "crash", lambda: str(1 / 0))
    client = app.test_client()
    responses = [client.get("/none"), client.post("/"), client.get("/crash")]
    assert [r.status_code for r in responses] == [404, 405, 500]
    assert [x_headers(r)[1] for r in responses] == ["8", "7", "6"]


def fails_once(app: Flask) -> None:
    """Let a hook fail after the Limiters' own have run. Flask then answers with a 500."""

    @app.after_request
    def fail(response: Response) -> Response:
        assert response.status_code == 500, "not a good answer"
        return response


def test_a_500_for_a_hook_that_failed_later_carries_the_headers(
    app: Flask, buckets: CountingStore
) -> None:
    fails_once(app)
    limiter = Limiter(app, redis=buckets)
    app.get("/")(limiter.limit("9/minute")(answer()))
    response = app.test_client().get("/")
    assert (response.status_code, x_headers(response)[:2]) == (500, ["9", "8"])


@pytest.mark.parametrize("tighter", ["first", "second"])
def test_such_a_500_tells_the_tighter_of_two_limiters_limits(app: Flask, tighter: str) -> None:
    fails_once(app)
    for name in ("first", "second"):
        Limiter(app, name=name, default_limits=["2/minute" if name == tighter else "9/minute"])
    app.get("/")(answer())
    response = app.test_client().get("/")
    assert (response.status_code, x_headers(response)[:2]) == (500, ["2", "1"])


def test_redirects_and_streams_carry_the_headers(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    limit = limiter.limit("9/minute")
    app.add_url_rule("/moved", "moved", limit(lambda: Response(status=302)))
    app.add_url_rule("/stream", "stream", limit(lambda: Response(iter("ab"))))
    for path in ("/moved", "/stream"):
        response = client.get(path)
        assert x_headers(response)[:2] == ["9", "8"]
        response.close()


def test_a_slash_redirect_is_an_unmatched_url(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets, application_limits=["9/minute"])
    app.add_url_rule("/dir/", "v", limiter.limit("1/minute")(answer()))
    response = app.test_client().get("/dir")
    assert (response.status_code, x_headers(response)[1]) == (308, "8")


def test_a_views_own_retry_after_is_never_changed(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    def busy() -> Response:
        return Response("busy", 503, {"Retry-After": "120", "Cache-Control": "max-age=5"})

    app.get("/")(limiter.limit("1/minute")(busy))
    response = client.get("/")
    assert response.headers["Retry-After"] == "120"
    assert response.headers["Cache-Control"] == "max-age=5"


def test_an_error_handlers_own_retry_after_is_never_changed(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("1/minute")(answer()))
    app.register_error_handler(429, lambda error: Response("", 429, {"Retry-After": "7"}))
    client.get("/")
    refused = client.get("/")
    assert refused.headers.getlist("Retry-After") == ["7"]
    assert refused.headers.getlist("Cache-Control") == ["no-store"]


def test_an_allowed_response_says_nothing_about_caches(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("1/minute")(answer()))
    response = client.get("/")
    assert "Cache-Control" not in response.headers
    assert "Retry-After" not in response.headers


@pytest.mark.parametrize(
    ("limit", "cost", "wait"),
    [("2/second", 1, "1"), ("1/second", 1, "1"), ("10 per 15 s", 1, "2"), ("3 per 10 s", 2, "4")],
)
def test_retry_after_is_in_whole_seconds_rounded_up(
    app: Flask, limiter: Limiter, client: FlaskClient, limit: str, cost: int, wait: str
) -> None:
    app.get("/")(limiter.limit(limit, cost=cost)(answer()))
    responses = [client.get("/") for _ in range(12)]
    refused = next(r for r in responses if r.status_code == 429)
    assert refused.headers["Retry-After"] == wait


def test_a_cost_that_can_never_be_paid_has_no_retry_after(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("5/minute", cost=6)(answer()))
    refused = client.get("/")
    assert refused.status_code == 429
    assert "Retry-After" not in refused.headers
    assert x_headers(refused)[:2] == ["5", "5"], "and takes nothing"
    assert refused.json == {"error": "Too Many Requests", "retryAfterMs": None}
