"""Several styles, none, and names of one's own."""

from __future__ import annotations

from flask import Flask, Response, make_response
from flask.testing import FlaskClient

from flask_bucket import Limiter
from tests.ext.conftest import CountingStore, answer, statuses
from tests.ext.headers.conftest import NOW, styled


def test_both_styles_can_be_sent(buckets: CountingStore) -> None:
    app, limiter, client = styled(buckets, "x-ratelimit", "ietf")
    app.get("/")(limiter.limit("5/second")(answer()))
    headers = client.get("/").headers
    assert {"X-RateLimit-Limit", "RateLimit", "RateLimit-Policy"} <= set(headers.keys())


def test_no_style_sends_no_rate_headers_but_retry_after(buckets: CountingStore) -> None:
    app, limiter, client = styled(buckets)
    app.get("/")(limiter.limit("1/minute")(answer()))
    client.get("/")
    refused = client.get("/")
    assert [name for name, _ in refused.headers if "rate" in name.lower()] == []
    assert refused.headers["Retry-After"] == "60"


def test_a_view_that_sets_a_rate_header_itself_is_overruled(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    @app.get("/")
    @limiter.limit("9/minute")
    def view() -> Response:
        response = make_response("fine")
        response.headers["X-RateLimit-Limit"] = "upstream"
        return response

    assert client.get("/").headers.getlist("X-RateLimit-Limit") == ["9"]
    assert statuses(client, "/", 1) == [200]


# Names of one's own.


def named(buckets: CountingStore, **names: str) -> FlaskClient:
    app = Flask("named")
    app.config["BUCKET_HEADERS"] = names
    limiter = Limiter(app, redis=buckets)
    app.get("/")(limiter.limit("1/minute")(answer()))
    return app.test_client()


def test_headers_may_have_other_names(buckets: CountingStore) -> None:
    headers = named(buckets, limit="X-Max", remaining="X-Left", reset="X-Full-At").get("/").headers
    assert [headers[name] for name in ("X-Max", "X-Left", "X-Full-At")] == ["1", "0", str(NOW + 60)]
    assert "X-RateLimit" not in str(headers)


def test_headers_that_are_not_named_keep_their_names(buckets: CountingStore) -> None:
    headers = named(buckets, limit="X-Max").get("/").headers
    assert (headers["X-Max"], headers["X-RateLimit-Remaining"]) == ("1", "0")
    assert "X-RateLimit-Limit" not in headers


def test_the_wait_may_have_a_name_beside_retry_after(buckets: CountingStore) -> None:
    client = named(buckets, retry_after="X-Wait")
    assert "X-Wait" not in client.get("/").headers
    refused = client.get("/").headers
    assert (refused["X-Wait"], refused["Retry-After"]) == ("60", "60")
