"""Every configuration key: valid, not valid, and from the environment."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from flask import Flask

from flask_bucket import ConfigError, Limiter, MemoryStore
from flask_bucket.config import Config
from flask_bucket.stores.outage import OutageStore
from tests.ext.conftest import CountingStore, allowed, answer

KEYS = {f"BUCKET_{field.name.upper()}" for field in fields(Config)}


def configured(**settings: Any) -> Flask:
    app = Flask("configured")
    app.config.update(settings)
    return app


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


# What the settings do. Keys and headers, errors and outages have files of their own.


def test_a_key_that_is_set_wins_over_the_constructor(buckets: CountingStore) -> None:
    app = configured(BUCKET_DEFAULT_LIMITS="3/minute", BUCKET_APPLICATION_LIMITS=())
    Limiter(app, redis=buckets, default_limits=["1/minute"], application_limits=["1/minute"])
    app.get("/")(answer())
    assert allowed(app.test_client(), "/") == 3


def test_a_url_that_is_set_wins_over_the_constructor(buckets: CountingStore) -> None:
    app = configured(BUCKET_REDIS_URL="memory://", BUCKET_DEFAULT_LIMITS="3/minute")
    Limiter(app, redis=buckets)
    app.get("/")(answer())
    assert allowed(app.test_client(), "/") == 3
    assert buckets.calls == []


def test_a_key_that_is_none_is_not_set(buckets: CountingStore) -> None:
    app = configured(
        BUCKET_DEFAULT_LIMITS=None,
        BUCKET_APPLICATION_LIMITS=None,
        BUCKET_REDIS_URL=None,
        BUCKET_KEY_SECRET=None,
    )
    Limiter(app, redis=buckets, default_limits="1/minute")
    app.get("/")(answer())
    assert allowed(app.test_client(), "/") == 1
    assert buckets.calls == ["take", "take"]


def test_disabled_means_that_no_hook_does_anything(buckets: CountingStore) -> None:
    app = configured(BUCKET_ENABLED=False)
    asked: list[str] = []

    def key() -> str:
        asked.append("key")
        return "client"

    limiter = Limiter(
        app,
        redis=buckets,
        key_func=key,
        default_limits=["1/minute"],
        application_limits=["1/minute"],
    )
    limiter.request_filter(lambda: key() == "never")
    app.add_url_rule("/d", "d", answer())
    app.add_url_rule("/v", "v", limiter.limit("1/minute")(answer()))
    client = app.test_client()
    assert (allowed(client, "/d"), allowed(client, "/v")) == (30, 30)
    assert "X-RateLimit-Limit" not in client.get("/v").headers
    with app.app_context():
        assert not limiter.enabled
        assert limiter.consume("1/minute", "c", 5).allowed
        assert limiter.peek("1/minute", "c", 5).allowed
    assert asked == buckets.calls == []


def test_switching_on_at_run_time_overrules_the_setting(buckets: CountingStore) -> None:
    app = configured(BUCKET_ENABLED=False)
    limiter = Limiter(app, redis=buckets)
    app.get("/")(limiter.limit("1/minute")(answer()))
    client = app.test_client()
    assert allowed(client, "/") == 30
    limiter.enabled = True
    assert allowed(client, "/") == 1


def test_exempt_methods_are_free_of_all_but_explicit_limits(buckets: CountingStore) -> None:
    app = configured(BUCKET_EXEMPT_METHODS=["get"])
    limiter = Limiter(app, redis=buckets, default_limits="1/minute", application_limits="2/minute")
    app.add_url_rule("/d", "d", answer(), methods=["GET", "POST"])
    app.add_url_rule("/v", "v", limiter.limit("1/minute")(answer()))
    client = app.test_client()
    assert allowed(client, "/d") == 30
    assert allowed(client, "/v") == 1
    assert allowed(client, "/d", method="POST") == 1


@pytest.mark.parametrize("path", ["/", "/not-found"])
def test_head_is_exempt_where_get_is(buckets: CountingStore, path: str) -> None:
    app = configured(BUCKET_EXEMPT_METHODS=["GET"])
    Limiter(app, redis=buckets, default_limits="1/minute", application_limits="2/minute")
    app.add_url_rule("/", "d", answer())
    assert allowed(app.test_client(), path, method="HEAD") == 30


def test_get_is_limited_where_only_head_is_exempt(buckets: CountingStore) -> None:
    app = configured(BUCKET_EXEMPT_METHODS=["HEAD"])
    Limiter(app, redis=buckets, default_limits="1/minute")
    app.add_url_rule("/", "d", answer())
    client = app.test_client()
    assert allowed(client, "/", method="HEAD") == 30
    assert allowed(client, "/") == 1


def test_dry_run_makes_every_limit_a_shadow(buckets: CountingStore) -> None:
    app = configured(BUCKET_DRY_RUN=True)
    limiter = Limiter(app, redis=buckets, default_limits="1/minute", application_limits="2/minute")
    app.add_url_rule("/d", "d", answer())
    app.add_url_rule("/v", "v", limiter.limit("1/minute")(answer()))
    client = app.test_client()
    assert (allowed(client, "/d"), allowed(client, "/v")) == (30, 30)
    assert "X-RateLimit-Limit" not in client.get("/v").headers
    with app.app_context():
        answers = [limiter.consume("1/minute", "c"), limiter.peek("1/minute", "c")]
        answers += [limiter.consume("1/minute", "c")]
    assert [decision.allowed for decision in answers] == [True] * 3
    assert [decision.outcomes[0].allowed for decision in answers] == [True, False, False]
    assert [decision.retry_after for decision in answers] == [0.0] * 3


def test_unset_means_the_store_of_this_process() -> None:
    app = configured()
    Limiter(app)
    assert isinstance(app.extensions["flask_bucket"]["bucket"].store, MemoryStore)


def test_several_workers_that_count_alone_are_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = configured(BUCKET_DEFAULT_LIMITS="9/minute")
    Limiter(app)
    app.get("/")(answer())
    client = app.test_client()
    for _ in range(2):
        client.get("/", environ_overrides={"wsgi.multiprocess": True})
    assert [r.getMessage() for r in caplog.records if "BUCKET_REDIS_URL" in r.getMessage()] != []
    assert len(caplog.records) == 1


def test_outage_settings_reach_the_store() -> None:
    app = configured(
        BUCKET_REDIS_URL="redis://127.0.0.1:1/0",
        BUCKET_ON_ERROR="deny",
        BUCKET_RECOVERY_INTERVAL=7,
        BUCKET_REFUSAL_CACHE=0,
    )
    Limiter(app)
    store = app.extensions["flask_bucket"]["bucket"].store
    assert isinstance(store, OutageStore)
    assert (store.policy, store.breaker.interval) == ("deny", 7.0)


def test_a_local_share_scales_each_limit_during_an_outage() -> None:
    app = configured(
        BUCKET_REDIS_URL="redis://127.0.0.1:1/0",
        BUCKET_ON_ERROR="local",
        BUCKET_LOCAL_SHARE=0.25,
        BUCKET_DEFAULT_LIMITS="12/hour",
    )
    Limiter(app)
    app.get("/")(answer())
    assert allowed(app.test_client(), "/") == 3


def test_init_app_connects_to_nothing() -> None:
    Limiter(configured(BUCKET_REDIS_URL="redis://192.0.2.1:6379/0"))


@pytest.mark.parametrize("value", [5, object(), b"redis://localhost", ["redis://localhost"]])
def test_what_is_no_store_is_refused(value: Any) -> None:
    app = configured()
    with pytest.raises(ConfigError, match="redis is a URL, a client of redis-py or a store"):
        Limiter(app, redis=value)
    assert app.before_request_funcs == {}


def test_the_password_of_a_bad_url_is_not_told() -> None:
    with pytest.raises(ConfigError) as error:
        Limiter(configured(BUCKET_REDIS_URL="http://:hunter2@localhost"))
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": ""},
        {"name": "a/b"},
        {"name": "a{b}"},
        {"name": 5},
        {"name": "a\n"},
        {"key_func": "address"},
        {"key_func": None},
        {"on_breach": "no"},
        {"default_limits": "often"},
        {"default_limits": ["5/second", 5]},
        {"application_limits": 5},
    ],
)
def test_a_bad_argument_is_refused_at_once(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Limiter(**arguments)


def test_settings_survive_being_written_as_json() -> None:
    settings = {f"BUCKET_{f.name.upper()}": getattr(Config(), f.name) for f in fields(Config)}
    assert Config.load(json.loads(json.dumps(settings))) == Config()
