"""Other keys than addresses, and keys with a secret."""

from __future__ import annotations

import re
from typing import Any

import pytest
from flask import Flask, request
from flask.testing import FlaskClient

from flask_bucket import ConfigError, Limiter, request_header
from flask_bucket.keys import Spelling
from tests.ext.conftest import CountingStore, answer, statuses


def test_a_header_makes_a_key(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    view = limiter.limit("1/minute", key_func=request_header("X-API-Key"))(answer())
    app.add_url_rule("/", "v", view)
    assert statuses(client, "/", 2, headers={"x-api-key": "a"}) == [200, 429]
    assert statuses(client, "/", 2, headers={"X-API-Key": "b"}) == [200, 429]


def test_an_absent_header_is_no_key(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    view = limiter.limit("1/minute", key_func=request_header("X-API-Key"))(answer())
    app.add_url_rule("/", "v", view)
    assert statuses(client, "/", 3) == [200] * 3
    assert statuses(client, "/", 3, headers={"X-API-Key": ""}) == [200] * 3


@pytest.mark.parametrize("name", ["", "X API Key", "X-Key:", "X-\nKey", None, 7, b"X-API-Key"])
def test_a_headers_name_is_checked(name: Any) -> None:
    with pytest.raises(ConfigError, match="X-API-Key"):
        request_header(name)


def test_no_key_skips_that_limit_alone(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    @app.get("/")
    @limiter.limit("1/minute", key_func=lambda: request.args.get("user"))
    @limiter.limit("3/minute")
    def view() -> str:
        return "fine"

    assert statuses(client, "/", 2) == [200, 200]
    assert statuses(client, "/?user=a", 2) == [200, 429]


def test_the_limiters_key_function_serves_every_level(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(
        app,
        redis=buckets,
        key_func=lambda: "u",
        default_limits=["9/minute"],
        application_limits=["9/minute"],
    )
    app.add_url_rule("/v", "v", limiter.limit("9/minute", override_defaults=False)(answer()))
    app.test_client().get("/v")
    assert [key.split(":")[1] for key in buckets.keys] == ["{u}"] * 3


def test_limiters_of_different_names_share_no_bucket(app: Flask, buckets: CountingStore) -> None:
    Limiter(app, redis=buckets, default_limits=["9/minute"])
    Limiter(app, redis=buckets, default_limits=["9/minute"], name="api")
    app.add_url_rule("/", "v", answer())
    app.test_client().get("/")
    assert buckets.keys == [
        "bucket:{127.0.0.1}:v@default:per-minute",
        "bucket/api:{127.0.0.1}:v@default:per-minute",
    ]


def test_the_prefix_can_be_set(app: Flask, buckets: CountingStore) -> None:
    app.config["BUCKET_KEY_PREFIX"] = "shop:eu"
    Limiter(app, redis=buckets, default_limits=["9/minute"])
    app.add_url_rule("/", "v", answer())
    app.test_client().get("/")
    assert buckets.keys == ["shop:eu:{127.0.0.1}:v@default:per-minute"]


# With a secret.


def test_a_secret_keeps_clients_out_of_every_key(app: Flask, buckets: CountingStore) -> None:
    app.config["BUCKET_KEY_SECRET"] = "s3cret" * 20
    limiter = Limiter(
        app,
        redis=buckets,
        key_func=lambda: request.args["user"],
        default_limits=["9/minute"],
        application_limits=["9/minute"],
    )
    app.add_url_rule("/", "v", limiter.limit("9/minute", override_defaults=False)(answer()))
    client = app.test_client()
    client.get("/?user=alice")
    with app.app_context():
        limiter.consume("9/minute", "alice")
        assert limiter.reset("alice") == 4
    clients = {key.split(":")[1] for key in buckets.keys}
    assert len(clients) == 1
    assert re.fullmatch(r"\{#[0-9a-f]{32}\}", clients.pop())
    client.get("/?user=bob")
    assert len({key.split(":")[1] for key in buckets.keys}) == 2
    assert not any("alice" in key or "bob" in key for key in buckets.keys)


def test_another_secret_gives_other_keys() -> None:
    keys = {Spelling("b", secret).start("alice") for secret in (None, "a", "b", "b" * 65)}
    assert len(keys) == 4


def test_every_character_of_a_long_secret_counts() -> None:
    secrets = ("s" * 64, "s" * 64 + "a", "s" * 64 + "b", "s" * 200)
    assert len({Spelling("b", secret).start("alice") for secret in secrets}) == 4
