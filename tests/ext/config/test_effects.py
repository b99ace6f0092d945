"""The effects of the settings. Keys, headers, errors and outages have files of their own."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from flask_bucket import Charge, ConfigError, Limit, Limiter, MemoryStore
from flask_bucket.config import Config
from flask_bucket.stores.outage import OutageStore
from tests.ext.config.conftest import configured
from tests.ext.conftest import CountingStore, allowed, answer


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
    refused = store.take([Charge(Limit(1, 1), "bucket:key")])
    assert (store.policy, refused.degraded) == ("deny", True)
    assert refused.retry_after == pytest.approx(7, abs=1)


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
