"""Every configuration key: valid, not valid, and from the environment."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from flask import Flask

from flask_bucket import ConfigError, Limiter
from flask_bucket.config import Config
from tests.ext.config.conftest import configured


def test_the_keys_and_defaults_are_those_of_the_documentation() -> None:
    config = Config()
    assert {f"BUCKET_{f.name.upper()}": getattr(config, f.name) for f in fields(Config)} == {
        "BUCKET_ENABLED": True,
        "BUCKET_REDIS_URL": None,
        "BUCKET_REDIS_OPTIONS": {},
        "BUCKET_KEY_PREFIX": "bucket",
        "BUCKET_KEY_SECRET": None,
        "BUCKET_DEFAULT_LIMITS": None,
        "BUCKET_APPLICATION_LIMITS": None,
        "BUCKET_BANS": None,
        "BUCKET_EXEMPT_METHODS": ("OPTIONS",),
        "BUCKET_IPV6_PREFIX": 64,
        "BUCKET_TIMEOUT": 0.1,
        "BUCKET_CONNECT_TIMEOUT": 2.0,
        "BUCKET_MAX_CONNECTIONS": 50,
        "BUCKET_ON_ERROR": "allow",
        "BUCKET_RECOVERY_INTERVAL": 1.0,
        "BUCKET_LOCAL_SHARE": 1.0,
        "BUCKET_REFUSAL_CACHE": 10_000,
        "BUCKET_HEADERS": ("x-ratelimit",),
        "BUCKET_ERROR_FORMAT": "json",
        "BUCKET_DRY_RUN": False,
        "BUCKET_LEASE": 0.0,
        "BUCKET_WORKERS": None,
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ENABLED", "yes"),
        ("ENABLED", 2),
        ("ENABLED", 1.0),
        ("ENABLED", None),
        ("REDIS_URL", 6379),
        ("REDIS_URL", ""),
        ("REDIS_URL", "localhost"),
        ("REDIS_URL", "http://localhost"),
        ("REDIS_OPTIONS", "ssl"),
        ("REDIS_OPTIONS", {1: 2}),
        ("KEY_PREFIX", ""),
        ("KEY_PREFIX", "a b"),
        ("KEY_PREFIX", "a{b"),
        ("KEY_PREFIX", "a/b"),
        ("KEY_PREFIX", "a\n"),
        ("KEY_PREFIX", "p" * 101),
        ("KEY_PREFIX", None),
        ("KEY_SECRET", ""),
        ("KEY_SECRET", b"bytes"),
        ("KEY_SECRET", 12345),
        ("DEFAULT_LIMITS", "often"),
        ("DEFAULT_LIMITS", ["5/second", "often"]),
        ("DEFAULT_LIMITS", {"5/second"}),
        ("DEFAULT_LIMITS", {"5/second": 1}),
        ("DEFAULT_LIMITS", b"5/second"),
        ("DEFAULT_LIMITS", 5),
        ("APPLICATION_LIMITS", "5/fortnight"),
        ("EXEMPT_METHODS", 5),
        ("EXEMPT_METHODS", [5]),
        ("EXEMPT_METHODS", None),
        ("IPV6_PREFIX", 0),
        ("IPV6_PREFIX", 129),
        ("IPV6_PREFIX", "64"),
        ("IPV6_PREFIX", 64.0),
        ("IPV6_PREFIX", True),
        ("TIMEOUT", 0),
        ("TIMEOUT", -1),
        ("TIMEOUT", "fast"),
        ("TIMEOUT", float("nan")),
        ("TIMEOUT", float("inf")),
        ("TIMEOUT", True),
        ("MAX_CONNECTIONS", 0),
        ("MAX_CONNECTIONS", 1.5),
        ("ON_ERROR", "panic"),
        ("ON_ERROR", None),
        ("RECOVERY_INTERVAL", 0),
        ("RECOVERY_INTERVAL", "1"),
        ("LOCAL_SHARE", 0),
        ("LOCAL_SHARE", 1.1),
        ("REFUSAL_CACHE", -1),
        ("REFUSAL_CACHE", 0.5),
        ("HEADERS", "draft-3"),
        ("HEADERS", ["x-ratelimit", "draft-3"]),
        ("HEADERS", 5),
        ("HEADERS", True),
        ("HEADERS", {"rate": "X-My-Limit"}),
        ("HEADERS", {"limit": "X My Limit"}),
        ("HEADERS", {"limit": None}),
        ("HEADERS", ["ietf", "ietf-11"]),
        ("HEADERS", ["x-ratelimit", "ietf", "ietf"]),
        ("HEADERS", {"limit": "X-Mine", "reset": "x-mine"}),
        ("HEADERS", {"limit": "X-RateLimit-Reset"}),
        ("ERROR_FORMAT", "xml"),
        ("DRY_RUN", "maybe"),
        ("DRY_RUN", -1),
    ],
)
def test_a_bad_value_is_an_error_when_the_application_is_made(key: str, value: Any) -> None:
    app = configured(**{f"BUCKET_{key}": value})
    with pytest.raises(ConfigError):
        Limiter(app)
    assert app.before_request_funcs == {}, "and nothing is half made"


@pytest.mark.parametrize("key", ["BUCKET_REDIS_URL", "BUCKET_KEY_SECRET"])
def test_an_empty_text_is_shown_as_it_is_though_others_are_hidden(key: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key} is ''; .* leave it unset to do without"):
        Limiter(configured(**{key: ""}))


@pytest.mark.parametrize("key", ["ON_ERROR", "IPV6_PREFIX", "HEADERS", "ENABLED", "LOCAL_SHARE"])
def test_a_bad_value_is_named_with_its_key_and_what_was_expected(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"^BUCKET_{key} is 'odd'; expected "):
        Limiter(configured(**{f"BUCKET_{key}": "odd"}))


@pytest.mark.parametrize("key", ["DEFAULT_LIMITS", "APPLICATION_LIMITS"])
def test_a_bad_limit_is_named_with_its_key(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"BUCKET_{key}.*5/fortnight.*expected"):
        Limiter(configured(**{f"BUCKET_{key}": ["5/fortnight"]}))


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("BUCKET_DEFAULT_LIMIT", "BUCKET_DEFAULT_LIMITS"),
        ("BUCKET_ENABLE", "BUCKET_ENABLED"),
        ("BUCKET_REDIS_URI", "BUCKET_REDIS_URL"),
        ("BUCKET_HEADRES", "BUCKET_HEADERS"),
    ],
)
def test_an_unknown_key_is_an_error_with_a_suggestion(key: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"{key} is not a setting.*{meant}"):
        Limiter(configured(**{key: 1}))


def test_keys_of_others_are_left_alone() -> None:
    Limiter(configured(BUCKETS=1, S3_BUCKET_NAME="x"))
    Limiter(configured(BUCKET_NAME="photos", BUCKET_REGION="eu-1", BUCKET_PUBLIC_URL="https://x"))


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("ENABLED", "false", False),
        ("ENABLED", "False", False),
        ("ENABLED", "TRUE", True),
        ("ENABLED", "1", True),
        ("ENABLED", "0", False),
        ("REDIS_URL", "redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("REDIS_URL", "memory://", "memory://"),
        ("REDIS_OPTIONS", '{"client_name": "shop"}', {"client_name": "shop"}),
        ("KEY_PREFIX", "shop", "shop"),
        ("KEY_SECRET", "s3cret", "s3cret"),
        ("KEY_SECRET", '"12345"', "12345"),
        ("DEFAULT_LIMITS", "5/second; 100/hour", "5/second; 100/hour"),
        ("DEFAULT_LIMITS", '["5/second"]', ["5/second"]),
        ("APPLICATION_LIMITS", "1000/minute", "1000/minute"),
        ("EXEMPT_METHODS", "options, HEAD", ("OPTIONS", "HEAD")),
        ("EXEMPT_METHODS", "[]", ()),
        ("IPV6_PREFIX", "56", 56),
        ("TIMEOUT", "0.25", 0.25),
        ("TIMEOUT", "1", 1.0),
        ("MAX_CONNECTIONS", "10", 10),
        ("ON_ERROR", "local", "local"),
        ("RECOVERY_INTERVAL", "5", 5.0),
        ("LOCAL_SHARE", "0.25", 0.25),
        ("REFUSAL_CACHE", "0", 0),
        ("HEADERS", "x-ratelimit,ietf", ("x-ratelimit", "ietf")),
        ("HEADERS", '["ietf"]', ("ietf",)),
        ("HEADERS", "[]", ()),
        ("HEADERS", "", ()),
        ("HEADERS", '{"limit": "X-My-Limit"}', {"limit": "X-My-Limit"}),
        ("ERROR_FORMAT", "problem", "problem"),
        ("DRY_RUN", "true", True),
        ("DRY_RUN", "False", False),
    ],
)
def test_each_key_can_be_set_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, key: str, text: str, expected: Any
) -> None:
    monkeypatch.setenv(f"FLASK_BUCKET_{key}", text)
    app = Flask("from the environment")
    app.config.from_prefixed_env()
    assert getattr(Config.load(app.config), key.lower()) == expected
    Limiter(app)


def test_a_list_may_be_any_iterable() -> None:
    app = configured(BUCKET_HEADERS=iter(["ietf"]), BUCKET_EXEMPT_METHODS={"options"})
    config = Config.load(app.config)
    assert (config.headers, config.exempt_methods) == (("ietf",), ("OPTIONS",))
