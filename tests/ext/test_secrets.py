"""Secrets are in no error, no repr, no log and no health answer, however malformed a setting is."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask

from flask_bucket import Limiter, RedisStore
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
    f"unix://:{SECRET}@",
    f"http://user:{SECRET}@host",
    f"rediss://user:{SECRET}@host/0?ssl_ca_certs=/none",
    f"redis+sentinel://user:{SECRET}@host",
    f"redis+sentinel://user:{SECRET}@host:none/service/0",
    f"redis+cluster://user:{SECRET}@host/3",
    f"redis+cluster://user:{SECRET}@host:none",
    SECRET.encode(),
    f"redis://:{SECRET}@host".encode(),
]

SETTINGS: list[tuple[str, Any]] = [
    *(("REDIS_URL", url) for url in URLS),
    ("KEY_SECRET", SECRET.encode()),
    ("KEY_SECRET", [SECRET]),
    ("REDIS_OPTIONS", f"password={SECRET}"),
    ("REDIS_OPTIONS", [SECRET]),
    ("REDIS_OPTIONS", {"password": SECRET, "db": "first"}),
    ("REDIS_OPTIONS", {"password": SECRET, "retry": 3}),
    ("REDIS_OPTIONS", {"password": SECRET, "no_such_option": 3}),
    ("REDIS_OPTIONS", {"password": SECRET, 5: 3}),
    ("REDIS_OPTIONS", {"username": SECRET, "ssl_ca_certs": 5}),
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


def test_no_repr_of_what_an_application_keeps_shows_a_secret(app: Flask) -> None:
    enforcer = app.extensions["flask_bucket"]["bucket"]
    things: list[Any] = [enforcer, enforcer.config, enforcer.spelling, enforcer.store]
    while (inner := getattr(things[-1], "store", None)) is not None:
        things.append(inner)
    link = things[-1]._link
    things += [link, *vars(things[-1]).values(), vars(enforcer)]
    assert SECRET not in " ".join(map(repr, things))


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
