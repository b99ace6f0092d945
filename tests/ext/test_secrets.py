"""Secrets are in no error, no repr, no log and no health answer, however malformed a setting is."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from flask import Flask

from flask_bucket import ConfigError, Limiter, RedisStore
from flask_bucket.cli import bucket

SECRET = "hunter2"

URLS = [
    f"redis://:{SECRET}#x@host/0",
    f"redis://:1234#{SECRET}@host",
    f"redis://:{SECRET}/x@host/0",
    f"redis://:{SECRET}?x@host/0",
    f"redis://:x@{SECRET}@host:none/0",
    f"redis:/:{SECRET}@host",
    f":{SECRET}@host:6379",
    f"user:{SECRET}@host",
    f"{SECRET}@host",
    f"redis://{SECRET}@host:notaport",
    f"redis://user:{SECRET}@host:notaport/0",
    f"redis://host:{SECRET}/0",
    f"redis://user:{SECRET}@host/first",
    f"redis://host/0?password={SECRET}&db=first",
    f"redis://host/0?pasword={SECRET}",
    f"redis://host:6379/{SECRET}",
    f"redis://host:6379/0/{SECRET}",
    f"redis://host:6379/0;{SECRET}",
    f"redis://host:6379/0?{SECRET}",
    f"redis://host:6379/0?password=x&{SECRET}",
    f"rediss://host/0?ssl_cert_reqs=none;password={SECRET}",
    f"unix://:{SECRET}@",
    f"unix://{SECRET}",
    f"unix://{SECRET}/redis.sock",
    f"redis+unix://{SECRET}/redis.sock",
    f"unix:///redis.sock?{SECRET}",
    f"http://user:{SECRET}@host",
    f"rediss://user:{SECRET}@host/0?ssl_ca_certs=/none",
    f"redis+sentinel://user:{SECRET}@host",
    f"redis+sentinel://user:{SECRET}@host:none/service/0",
    f"redis+sentinel://host/service/{SECRET}",
    f"redis+sentinel://host/{SECRET}?db=first",
    f"redis+sentinel://host//{SECRET}",
    f"redis+cluster://host/{SECRET}",
    f"redis+cluster://user:{SECRET}@host/3",
    f"redis+cluster://user:{SECRET}@host:none",
    f"redis://:{SECRET}@ho\N{ACCOUNT OF}st",
    SECRET.encode(),
    f"redis://:{SECRET}@host".encode(),
]

SETTINGS: list[tuple[str, Any]] = [
    *(("REDIS_URL", url) for url in URLS),
    ("KEY_SECRET", SECRET.encode()),
    ("KEY_SECRET", [SECRET]),
    ("KEY_SECRET", {"secret": SECRET}),
    ("KEY_SECRET", {"first": {"second": SECRET}}),
    ("REDIS_OPTIONS", f"password={SECRET}"),
    ("REDIS_OPTIONS", [SECRET]),
    ("REDIS_OPTIONS", {"password": SECRET, "db": "first"}),
    ("REDIS_OPTIONS", {"password": SECRET, "retry": 3}),
    ("REDIS_OPTIONS", {"password": SECRET, "no_such_option": 3}),
    ("REDIS_OPTIONS", {"password": SECRET, 5: 3}),
    ("REDIS_OPTIONS", {"username": SECRET, "ssl_ca_certs": 5}),
    ("REDIS_OPTIONS", {"username": SECRET, "credential_provider": SECRET}),
    ("REDIS_OPTIONS", {"nodes": [f"redis://:{SECRET}@host"], "db": "first"}),
    ("REDIS_OPTIONS", {"url": f"redis://:{SECRET}@host"}),
    ("REDIS_OPTIONS", {"sentinel_kwargs": SECRET}),
]


def shown(error: BaseException) -> str:
    """Return all that a log or an error tracker shows of an error, its causes included."""
    return "".join(traceback.format_exception(error)) + repr(error)


def said(error: BaseException | None) -> Iterator[str]:
    """Yield the messages of an error and of everything that it was raised from."""
    while error is not None:
        yield f"{error!r} {error}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@pytest.mark.parametrize(("key", "value"), SETTINGS)
def test_a_wrong_setting_is_told_without_its_secret(key: str, value: Any) -> None:
    app = Flask("secretive")
    app.config["BUCKET_REDIS_URL"] = "redis://localhost"
    app.config[f"BUCKET_{key}"] = value
    with pytest.raises(ValueError, match=r"Expected|expected|set BUCKET|holds") as raised:
        Limiter(app)
    assert SECRET not in " ".join(said(raised.value))


@pytest.mark.parametrize("url", URLS)
def test_a_wrong_url_is_told_without_its_secret_wherever_it_is_given(url: Any) -> None:
    for give in (
        lambda: RedisStore.from_url(url),
        lambda: RedisStore(url),
        lambda: Limiter(url),
        lambda: Limiter(Flask("secretive"), redis=url),
    ):
        with pytest.raises(ValueError) as raised:  # noqa: PT011  # each says something else
            give()
        assert SECRET not in " ".join(said(raised.value))


@pytest.mark.parametrize(
    "thing",
    [
        [f"redis://:{SECRET}@host"],
        {"url": f"redis://:{SECRET}@host"},
        redis.ConnectionPool(password=SECRET),
        redis.asyncio.ConnectionPool(password=SECRET),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_a_thing_that_is_no_store_is_told_without_its_secret(thing: Any) -> None:
    for give in (
        lambda: RedisStore(thing),
        lambda: Limiter(thing),
        lambda: Limiter(Flask("secretive"), redis=thing),
    ):
        with pytest.raises(ConfigError, match="an instance of") as raised:
            give()
        assert SECRET not in " ".join(said(raised.value))


def test_a_url_given_to_redis_store_itself_is_told_to_go_to_from_url() -> None:
    with pytest.raises(ConfigError, match=r"not 'redis://\*\*\*@host'.*RedisStore\.from_url"):
        RedisStore(f"redis://:{SECRET}@host")  # type: ignore[arg-type]  # that is the mistake


@pytest.mark.parametrize("url", ["redis://host/0?db=first", "redis://host/first"])
def test_the_error_for_a_url_alone_speaks_of_no_options_and_ends_each_sentence_once(
    url: str,
) -> None:
    with pytest.raises(ConfigError) as raised:
        RedisStore.from_url(url)
    assert "the options" not in str(raised.value)
    assert ".." not in str(raised.value)


@pytest.mark.parametrize("secret", ["x", "option", "unexpected"])
def test_a_secret_that_is_a_word_of_the_message_changes_nothing_in_it(secret: str) -> None:
    with pytest.raises(ConfigError) as raised:
        RedisStore.from_url("redis://host", password=secret, pasword=secret)
    assert "redis-py's connections have no option 'pasword'. Expected" in str(raised.value)


def test_a_password_in_a_url_may_hold_a_character_that_normalises_to_another() -> None:
    store = RedisStore.from_url("redis://us%40er:a\N{ACCOUNT OF}b%2Fc@127.0.0.1:1/0")
    settings = store.client.connection_pool.connection_kwargs
    assert (settings["username"], settings["password"]) == ("us@er", "a\N{ACCOUNT OF}b/c")
    store.close()


@pytest.fixture
def app() -> Iterator[Flask]:
    """An application with secrets in every setting, whose server is not there."""
    made = Flask("secretive")
    made.config.update(
        BUCKET_REDIS_URL=f"redis://{SECRET}:{SECRET}@127.0.0.1:1/0",
        BUCKET_REDIS_OPTIONS={"client_name": "shop", "password": SECRET},
        BUCKET_KEY_SECRET=SECRET,
    )
    Limiter(made, default_limits=["5/minute"])
    yield made
    made.extensions["flask_bucket"]["bucket"].store.close()


def kept(thing: object, seen: dict[int, object]) -> Iterator[object]:
    """Yield a thing and all that it is made of, as far as it is ours or a container."""
    ours = type(thing).__module__.startswith("flask_bucket")
    if id(thing) in seen or not (ours or isinstance(thing, (dict, list, tuple, set))):
        return
    seen[id(thing)] = thing
    yield thing
    parts = list(thing.values() if isinstance(thing, dict) else [])
    parts += thing if isinstance(thing, (list, tuple, set)) else []
    parts += getattr(thing, "__dict__", {}).values()
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    for part in (*parts, *(getattr(thing, name, None) for name in slots)):
        yield from kept(part, seen)


@pytest.mark.parametrize("given", ["setting", "argument", "client"])
def test_no_repr_of_what_a_limiter_keeps_shows_a_secret(given: str) -> None:
    app = Flask("secretive")
    app.config["BUCKET_KEY_SECRET"] = SECRET
    url = f"redis://{SECRET}:{SECRET}@127.0.0.1:1/0"
    handed: Any = {"argument": url, "client": redis.Redis.from_url(url, socket_timeout=0.1)}
    if given == "setting":
        app.config["BUCKET_REDIS_URL"] = url
        app.config["BUCKET_REDIS_OPTIONS"] = {"client_name": "shop", "password": SECRET}
    limiter = Limiter(app, default_limits=["5/minute"], redis=handed.get(given))
    app.get("/")(lambda: "fine")
    app.test_client().get("/")
    found = [*kept([limiter, app.extensions], {})]
    assert {"Registry", "Enforcer", "Config", "Spelling", "RedisStore", "Link"} <= {
        type(thing).__name__ for thing in found
    }
    containers = (dict, list, tuple, set)  # of which some hold a setting as it was given
    reprs = [repr(thing) for thing in found if not isinstance(thing, containers)]
    assert [text for text in reprs if SECRET in text] == []
    app.extensions["flask_bucket"]["bucket"].store.close()


def test_no_log_and_no_health_answer_shows_a_secret(
    app: Flask, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    app.get("/")(lambda: "fine")
    assert app.test_client().get("/").status_code == 200
    (limiter_health,) = (
        layer.health()
        for layer in _layers(app.extensions["flask_bucket"]["bucket"].store)
        if hasattr(layer, "health")
    )
    assert limiter_health.state == "degraded"
    assert SECRET not in repr(limiter_health) + caplog.text


def test_the_doctor_shows_no_secret(app: Flask) -> None:
    result = app.test_cli_runner().invoke(bucket, ["doctor", "--json"])
    assert "FB101" in result.output
    assert SECRET not in result.output


def _layers(store: Any) -> Iterator[Any]:
    while store is not None:
        yield store
        store = getattr(store, "store", None)
