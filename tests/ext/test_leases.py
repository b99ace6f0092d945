"""Leases from outside: rules, settings, store calls and headers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from flask import Flask

from flask_bucket import Charge, ConfigError, Decision, Limiter, MemoryStore, Rule
from flask_bucket.stores.base import WrappingStore
from tests.ext.conftest import Clock, answer, statuses


class Remote(WrappingStore):
    """A store that takes a call, and counts them."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(MemoryStore(clock))
        self.calls: list[list[str]] = []

    def take(
        self,
        charges: Sequence[Charge],
        held: Sequence[Charge] = (),
        shadow: Sequence[Charge] = (),
        now: int | None = None,
    ) -> Decision:
        self.calls.append([charge.limit.name for charge in (*charges, *shadow)])
        return super().take(charges, held, shadow, now)


@pytest.fixture
def remote(clock: Clock) -> Remote:
    return Remote(clock)


def leasing(remote: Remote, **settings: Any) -> Flask:
    app = Flask("app")
    app.config.update({"BUCKET_WORKERS": 1, **settings})
    limiter = Limiter(
        app,
        redis=remote,
        application_limits=Rule("1000/second burst 4000", lease=10, key_func=lambda: "all"),
    )
    app.add_url_rule("/", "index", limiter.limit("5/minute")(answer()))
    app.add_url_rule("/free", "free", answer())
    return app


def test_a_leased_application_limit_takes_no_call_of_its_own(remote: Remote) -> None:
    client = leasing(remote).test_client()
    statuses(client, "/free", 20)
    remote.calls.clear()
    assert statuses(client, "/", 4) == [200] * 4
    assert remote.calls == [["per-minute"]] * 4


def test_a_refused_request_takes_no_leased_tokens(remote: Remote) -> None:
    client = leasing(remote, BUCKET_REFUSAL_CACHE=0).test_client()
    first = int(client.get("/free").headers["X-RateLimit-Remaining"])
    statuses(client, "/free", 20)
    statuses(client, "/", 25)  # of which five are allowed
    assert int(client.get("/free").headers["X-RateLimit-Remaining"]) == first - 20 - 5 - 1


def test_a_flood_that_the_refusal_cache_answers_takes_no_leased_tokens_and_no_calls(
    remote: Remote,
) -> None:
    client = leasing(remote).test_client()
    first = int(client.get("/free").headers["X-RateLimit-Remaining"])
    statuses(client, "/free", 20)
    statuses(client, "/", 6)
    remote.calls.clear()
    statuses(client, "/", 30)
    assert remote.calls == []
    assert int(client.get("/free").headers["X-RateLimit-Remaining"]) == first - 20 - 5 - 1


def test_remaining_goes_down_one_by_one(remote: Remote) -> None:
    client = leasing(remote).test_client()
    told = [int(client.get("/free").headers["X-RateLimit-Remaining"]) for _ in range(50)]
    assert told == list(range(3999, 3949, -1))


def test_the_setting_leases_all_limits_that_can_be(remote: Remote) -> None:
    app = Flask("app")
    app.config.update({"BUCKET_WORKERS": 1, "BUCKET_LEASE": 10})
    limiter = Limiter(app, redis=remote)
    app.add_url_rule("/fast", "fast", limiter.limit("1000/second burst 4000")(answer()))
    app.add_url_rule("/slow", "slow", limiter.limit("20/minute")(answer()))
    app.add_url_rule("/off", "off", limiter.limit("1000/second", lease=0)(answer()))
    deducting = limiter.limit("1000/second", deduct_when=lambda response: False)
    app.add_url_rule("/deducting", "deducting", deducting(answer()))
    app.add_url_rule("/dry", "dry", limiter.limit("1000/second", dry_run=True)(answer()))
    client, calls = app.test_client(), {}
    for path in ("/fast", "/slow", "/off", "/deducting", "/dry"):
        remote.calls.clear()
        statuses(client, path, 20)
        calls[path] = len(remote.calls)
    assert calls == {"/fast": 5, "/slow": 20, "/off": 20, "/deducting": 20, "/dry": 20}


@pytest.mark.parametrize("environment", [None, "", "none", "0"])
def test_without_a_number_of_workers_nothing_is_leased(
    remote: Remote, monkeypatch: pytest.MonkeyPatch, environment: str | None
) -> None:
    if environment is not None:
        monkeypatch.setenv("WEB_CONCURRENCY", environment)
    else:
        monkeypatch.delenv("WEB_CONCURRENCY", raising=False)
    client = leasing(remote, BUCKET_WORKERS=None).test_client()
    statuses(client, "/free", 20)
    assert len(remote.calls) == 20


def test_the_environment_may_say_the_number_of_workers(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEB_CONCURRENCY", "4")
    client = leasing(remote, BUCKET_WORKERS=None).test_client()
    statuses(client, "/free", 20)
    assert len(remote.calls) < 10


@pytest.mark.parametrize("lease", [-0.1, 10.1, "1", True, float("nan")])
def test_a_lease_that_is_none_is_refused_where_it_is_written(lease: Any) -> None:
    with pytest.raises(ConfigError, match=r"lease is .* expected a number of seconds from 0"):
        Rule("5/second", lease=lease)


@pytest.mark.parametrize("options", [{"deduct_when": bool}, {"dry_run": True}])
def test_a_lease_of_tokens_that_are_counted_one_by_one_is_refused(options: Any) -> None:
    with pytest.raises(ConfigError, match="does not go with deduct_when or dry_run"):
        Rule("5/second", lease=0.1, **options)
    Rule("5/second", lease=0, **options)


@pytest.mark.parametrize(
    "settings", [{"BUCKET_LEASE": 11}, {"BUCKET_WORKERS": 0}, {"BUCKET_WORKERS": "4"}]
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    app = Flask("app")
    app.config.update(settings)
    with pytest.raises(ConfigError, match=next(iter(settings))):
        Limiter(app)
