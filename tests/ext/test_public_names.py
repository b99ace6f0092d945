"""The names that users import, and the arguments that they know from elsewhere."""

from __future__ import annotations

import inspect

import flask_bucket
from flask_bucket import Limiter


def test_the_package_exports_what_the_documentation_names() -> None:
    assert set(flask_bucket.__all__) == {
        "AtOnce",
        "Ban",
        "Charge",
        "ConfigError",
        "Decision",
        "Limit",
        "Limiter",
        "MemoryStore",
        "Outcome",
        "RateLimitExceeded",
        "RedisStore",
        "Rule",
        "StoreUnavailable",
        "client_address",
        "client_banned",
        "client_network",
        "limit_exceeded",
        "limit_low",
        "networks",
        "request_header",
        "store_recovered",
        "store_unavailable",
    }
    assert all(hasattr(flask_bucket, name) for name in flask_bucket.__all__)


def test_limit_takes_its_options_by_name() -> None:
    rule, *options = list(inspect.signature(Limiter.limit).parameters.values())[1:]
    assert rule.name == "rule"
    assert {option.kind for option in options} == {inspect.Parameter.KEYWORD_ONLY}
    assert {option.name: option.default for option in options} == {
        "burst": None,
        "capacity": None,
        "refill_rate": None,
        "per": 1,
        "key_func": None,
        "scope": None,
        "name": None,
        "per_method": False,
        "methods": None,
        "cost": 1,
        "exempt_when": None,
        "deduct_when": None,
        "override_defaults": True,
        "error_message": None,
        "on_breach": None,
        "dry_run": False,
        "low": None,
        "lease": None,
        "holds": None,
        "ban": None,
    }


def test_the_limiter_takes_everything_after_the_application_by_name() -> None:
    app, *options = list(inspect.signature(Limiter).parameters.values())
    assert (app.name, app.default) == ("app", None)
    assert {option.kind for option in options} == {inspect.Parameter.KEYWORD_ONLY}
    assert [option.name for option in options] == [
        "key_func",
        "default_limits",
        "application_limits",
        "bans",
        "redis",
        "on_breach",
        "name",
    ]
