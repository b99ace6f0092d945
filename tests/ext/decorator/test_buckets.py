"""Which endpoints and methods share a bucket."""

from __future__ import annotations

import pytest
from flask import Flask
from flask.testing import FlaskClient

from flask_bucket import ConfigError, Limiter
from tests.ext.conftest import CountingStore, allowed, answer, statuses


def test_a_view_called_by_another_view_is_charged_for_that_endpoint(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    inner = limiter.limit("1/minute")(answer("inner"))
    app.add_url_rule("/inner", "inner", inner)
    app.add_url_rule("/outer", "outer", lambda: inner())
    assert statuses(client, "/outer", 2) == [200, 429]
    assert statuses(client, "/inner", 2) == [200, 429]


def test_the_same_view_under_two_endpoints_has_two_buckets(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    view = limiter.limit("1/minute")(answer())
    app.add_url_rule("/a", "a", view)
    app.add_url_rule("/b", "b", view)
    assert statuses(client, "/a", 2) == [200, 429]
    assert statuses(client, "/b", 2) == [200, 429]


def test_two_urls_of_one_endpoint_share_its_bucket(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/<path:where>")(limiter.limit("1/minute")(lambda where: where))
    assert statuses(client, "/a", 1) + statuses(client, "/b", 1) == [200, 429]


def test_functions_of_one_name_do_not_share_a_bucket(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.add_url_rule("/a", "a", limiter.limit("1/minute")(answer()))
    app.add_url_rule("/b", "b", limiter.limit("1/minute")(answer()))
    assert statuses(client, "/a", 1) + statuses(client, "/b", 1) == [200, 200]


def test_stacked_limits_of_one_period_have_buckets_of_their_own(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.add_url_rule("/", "v", limiter.limit("9/minute")(limiter.limit("3/minute")(answer())))
    assert allowed(client, "/") == 3
    assert buckets.keys[:2] == [
        "bucket:{127.0.0.1}:v:per-minute",
        "bucket:{127.0.0.1}:v:per-minute-2",
    ]


def test_a_limit_added_outside_moves_no_bucket(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets)
    inner = limiter.limit("3/minute")(answer())
    app.add_url_rule("/", "v", inner)
    client = app.test_client()
    client.get("/")
    app.view_functions["v"] = limiter.limit("9/minute")(inner)
    assert client.get("/").headers["X-RateLimit-Remaining"] == "1"


def test_scope_and_name_share_a_bucket_over_endpoints(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.add_url_rule("/a", "a", limiter.limit("2/minute", scope="api")(answer()))
    app.add_url_rule("/b", "b", limiter.limit("2/minute", scope="api")(answer()))
    app.add_url_rule("/c", "c", limiter.limit("2/minute", scope="api", name="other")(answer()))
    assert statuses(client, "/a", 1) + statuses(client, "/b", 2) == [200, 200, 429]
    assert statuses(client, "/c", 1) == [200]


def test_a_shared_limit_is_one_bucket_over_several_endpoints(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    together = limiter.shared_limit("3/minute", scope="together")
    app.add_url_rule("/a", "a", together(answer()))
    app.add_url_rule("/b", "b", together(answer()))
    assert statuses(client, "/a", 2) + statuses(client, "/b", 2) == [200, 200, 200, 429]
    with pytest.raises(ConfigError, match="scope"):
        limiter.shared_limit("3/minute", scope="")


def test_a_shared_limit_takes_what_a_limit_takes(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    view = limiter.shared_limit("4/minute", "s", cost=2, methods=["GET"])(answer())
    app.add_url_rule("/", view_func=view, methods=["GET", "POST"])
    assert allowed(client, "/") == 2
    assert statuses(client, "/", 1, method="POST") == [200]


def test_a_blueprint_may_be_limited_by_a_shared_limit(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    from flask import Blueprint

    for name in ("x", "y"):
        blueprint = Blueprint(name, __name__)
        blueprint.add_url_rule(f"/{name}", "v", answer())
        limiter.shared_limit("2/minute", "all")(blueprint)
        app.register_blueprint(blueprint)
    assert statuses(client, "/x", 1) + statuses(client, "/y", 2) == [200, 200, 429]


def test_methods_restrict_a_limit(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    view = limiter.limit("1/minute", methods=["post"])(answer())
    app.add_url_rule("/", view_func=view, methods=["GET", "POST"])
    assert statuses(client, "/", 3) == [200, 200, 200]
    assert statuses(client, "/", 2, method="POST") == [200, 429]


def test_methods_share_a_bucket_unless_per_method(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    methods = ["GET", "POST"]
    app.add_url_rule("/a", "a", limiter.limit("1/minute")(answer()), methods=methods)
    each = limiter.limit("1/minute", per_method=True)(answer())
    app.add_url_rule("/b", "b", each, methods=methods)
    assert statuses(client, "/a", 1) + statuses(client, "/a", 1, method="POST") == [200, 429]
    assert statuses(client, "/b", 2) == [200, 429]
    assert statuses(client, "/b", 2, method="POST") == [200, 429]


def test_head_counts_as_get(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    app.add_url_rule("/a", "a", limiter.limit("2/minute", per_method=True)(answer()))
    app.add_url_rule("/b", "b", limiter.limit("2/minute", methods=["GET"])(answer()))
    app.add_url_rule("/c", "c", limiter.limit("2/minute", methods=["HEAD"])(answer()))
    for path in ("/a", "/b", "/c"):
        assert statuses(client, path, 1, method="HEAD") == [200]
        assert statuses(client, path, 2) == [200, 429]
