"""Options that would undo the timeouts, or send a charge twice, are refused wherever they stand."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from flask import Flask
from redis.backoff import NoBackoff
from redis.retry import Retry

from flask_bucket import ConfigError, Limiter
from flask_bucket.stores.redis.options import Waits

RETRIES = "must not be sent twice"

OPTIONS = [
    ("socket_timeout", 5, "set BUCKET_TIMEOUT"),
    ("socket_connect_timeout", 5, "set BUCKET_CONNECT_TIMEOUT"),
    ("retry", Retry(NoBackoff(), 3), RETRIES),
    ("retry", None, RETRIES),
    ("retry_on_timeout", True, RETRIES),
    ("retry_on_error", [redis.ConnectionError], RETRIES),
]

URLS = ["redis://h", "rediss://h", "unix:///s", "redis+sentinel://h/service", "redis+cluster://h"]


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize(("name", "value", "advice"), OPTIONS)
def test_an_option_that_would_undo_a_promise_is_refused(
    url: str, name: str, value: Any, advice: str
) -> None:
    app = Flask("careless")
    app.config.update(BUCKET_REDIS_URL=url, BUCKET_REDIS_OPTIONS={name: value})
    with pytest.raises(ConfigError, match=advice):
        Limiter(app)


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("socket_timeout=5", "set BUCKET_TIMEOUT"),
        ("socket_connect_timeout=5", "set BUCKET_CONNECT_TIMEOUT"),
        ("retry_on_timeout=true", RETRIES),
        ("max_connections=3", "set BUCKET_MAX_CONNECTIONS"),
        ("timeout=5", "set BUCKET_TIMEOUT"),
        ("connect_timeout=5", "set BUCKET_CONNECT_TIMEOUT"),
        ("key_prefix=shop", "set BUCKET_KEY_PREFIX"),
    ],
)
def test_it_is_refused_in_a_url_too(url: str, option: str, advice: str) -> None:
    app = Flask("careless")
    app.config["BUCKET_REDIS_URL"] = f"{url}?{option}"
    with pytest.raises(ConfigError, match=advice):
        Limiter(app)


def test_it_is_refused_for_sentinels_too() -> None:
    app = Flask("careless")
    app.config["BUCKET_REDIS_URL"] = "redis+sentinel://h/service"
    app.config["BUCKET_REDIS_OPTIONS"] = {"sentinel_kwargs": {"socket_timeout": 5}}
    with pytest.raises(ConfigError, match="set BUCKET_TIMEOUT"):
        Limiter(app)


@pytest.mark.parametrize(
    ("retries", "words"),
    [(0, ""), (3, "up to 3 more times"), (-1, "again and again")],
)
def test_the_retries_of_a_client_are_said_in_words(retries: int, words: str) -> None:
    client = redis.Redis(retry=Retry(NoBackoff(), retries), socket_timeout=1)
    assert Waits.of(client).repeats == words


@pytest.mark.parametrize(
    ("connect", "reply", "words"),
    [
        (1, 1, ""),
        (1, None, "socket_timeout"),
        (None, None, "socket_connect_timeout and no socket_timeout"),
    ],
)
def test_the_timeouts_that_a_client_lacks_are_named(
    connect: int | None, reply: int | None, words: str
) -> None:
    client = redis.Redis(socket_connect_timeout=connect, socket_timeout=reply)
    assert Waits.of(client).missing == words
