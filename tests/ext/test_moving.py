"""Those who move over from Flask-Limiter are told what to write instead of its names."""

from __future__ import annotations

import importlib
import sys
from functools import wraps
from typing import Any

import pytest
from flask import Flask

from flask_bucket import ConfigError, Limiter, client_address
from tests.ext.conftest import answer

BY_NAME = r"Expected Limiter\(app, key_func=\.\.\.\)"


def configured(**settings: Any) -> Flask:
    app = Flask("configured")
    app.config.update(settings)
    return app


def test_a_key_function_in_place_of_the_application_is_refused(app: Flask) -> None:
    for arguments, options in (
        ((client_address,), {}),
        ((client_address,), {"app": app}),
        ((app, client_address), {}),
    ):
        with pytest.raises(ConfigError, match=BY_NAME) as refused:
            Limiter(*arguments, **options)  # type: ignore[arg-type]
        assert "client_address" in str(refused.value)


@pytest.mark.parametrize(
    ("argument", "instead"),
    [
        ("storage_uri", "redis='redis://...'"),
        ("storage_options", "BUCKET_REDIS_OPTIONS"),
        ("strategy", "leave it out"),
        ("headers_enabled", "BUCKET_HEADERS"),
        ("default_limits_per_method", r"default_limits=\[Rule\('5/second', per_method="),
        ("application_limits_cost", r"application_limits=\[Rule\('5/second', cost="),
    ],
)
def test_an_argument_of_the_constructor_is_answered_with_its_successor(
    app: Flask, argument: str, instead: str
) -> None:
    with pytest.raises(ConfigError, match=f"{argument}, .*{instead}"):
        Limiter(app, **{argument: "any"})  # type: ignore[arg-type]


def test_all_old_arguments_are_answered_at_once(app: Flask) -> None:
    with pytest.raises(ConfigError, match=r"for storage_uri, .*; for strategy, "):
        Limiter(app, strategy="fixed-window", storage_uri="redis://")  # type: ignore[call-arg]


def test_an_argument_of_nobody_is_python_s_own_error(app: Flask, limiter: Limiter) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        Limiter(app, colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        limiter.limit("5/second", colour="red")  # type: ignore[call-arg]


def test_the_limit_is_given_without_a_name(limiter: Limiter) -> None:
    with pytest.raises(ConfigError, match=r"limit_value, .*limiter\.limit\('5/second'\)"):
        limiter.limit(limit_value="5/second")  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"limit_value, .*limiter\.limit\('5/second'\)"):
        limiter.shared_limit(limit_value="5/second", scope="a")  # type: ignore[call-arg]


def test_only_the_limit_is_given_without_a_name(limiter: Limiter) -> None:
    with pytest.raises(ConfigError, match=r"client_address.*key_func=\.\.\."):
        limiter.limit("5/second", client_address)  # type: ignore[call-arg,arg-type]
    with pytest.raises(ConfigError, match=r"client_address.*key_func=\.\.\."):
        limiter.shared_limit("5/second", "scope", client_address)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("storage", "limiter.reset"),
        ("limiter", "limiter.consume"),
        ("check", "checked by themselves"),
        ("current_limit", "limiter.current.binding"),
        ("current_limits", "limiter.current.outcomes"),
    ],
)
def test_an_attribute_is_answered_with_its_successor(
    limiter: Limiter, name: str, instead: str
) -> None:
    with pytest.raises(AttributeError, match=f"{name}.*{instead}"):
        getattr(limiter, name)


def test_an_attribute_of_nobody_is_a_plain_error(limiter: Limiter) -> None:
    with pytest.raises(AttributeError, match=r"^Limiter has no attribute 'colour'\.$"):
        _ = limiter.colour  # type: ignore[attr-defined]
    assert not hasattr(limiter, "storage")


def test_the_module_of_key_functions_says_what_to_import() -> None:
    for _ in range(2):
        with pytest.raises(ImportError, match="from flask_bucket import client_address"):
            importlib.import_module("flask_bucket.util")
    assert "flask_bucket.util" not in sys.modules


# Configuration keys.


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("BUCKET_STRATEGY", "every limit is a token bucket"),
        ("BUCKET_STORAGE_URI", "BUCKET_REDIS_URL"),
        ("BUCKET_DEFAULT", "BUCKET_DEFAULT_LIMITS"),
        ("BUCKET_HEADERS_ENABLED", r"BUCKET_HEADERS = \(\)"),
        ("BUCKET_DEFAULTS_PER_METHOD", "Rule"),
    ],
)
def test_a_key_that_was_renamed_without_a_successor_is_an_error(key: str, instead: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} is not a setting.*{instead}"):
        Limiter(configured(**{key: "any"}))


def test_headers_that_are_switched_on_are_told_that_they_are(app: Flask) -> None:
    with pytest.raises(
        ConfigError, match=r"BUCKET_HEADERS is True; expected .*\(\) for no headers"
    ):
        Limiter(configured(BUCKET_HEADERS=True))


def test_leftover_keys_are_warned_of_in_one_record(caplog: pytest.LogCaptureFixture) -> None:
    app = configured(
        RATELIMIT_DEFAULT="5/minute", RATELIMIT_STORAGE_URI="redis://", RATELIMIT_LOGIN="ours"
    )
    Limiter(app)
    Limiter(app, name="api")
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("flask_bucket", "WARNING")
    assert record.getMessage() == (
        "The configuration has keys of Flask-Limiter, which are not read. Here, "
        "for RATELIMIT_DEFAULT, set BUCKET_DEFAULT_LIMITS; "
        "for RATELIMIT_STORAGE_URI, set BUCKET_REDIS_URL."
    )


def test_keys_of_a_flask_limiter_in_use_are_its_own(caplog: pytest.LogCaptureFixture) -> None:
    app = configured(RATELIMIT_DEFAULT="5/minute")
    app.extensions["limiter"] = {object()}
    Limiter(app)
    assert not caplog.records


def test_a_key_of_the_applications_own_is_no_leftover(caplog: pytest.LogCaptureFixture) -> None:
    Limiter(configured(RATELIMIT_LOGIN="5/minute", RATELIMIT="1/day"))
    assert not caplog.records


# Mistakes that are seen where they are written.


def needs_one(user: object) -> str:
    return "alice"


def test_a_function_that_needs_more_than_it_gets_is_refused(limiter: Limiter) -> None:
    expected = r"needs_one\(user: 'object'\) -> 'str' cannot be.*'user'"
    with pytest.raises(ConfigError, match=f"key_func is called without arguments.*{expected}"):
        Limiter(key_func=needs_one)  # type: ignore[arg-type]
    for option in ("key_func", "exempt_when", "cost", "error_message"):
        with pytest.raises(ConfigError, match=f"{option} is called without arguments"):
            limiter.limit("5/second", **{option: needs_one})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="rule is called without arguments"):
        limiter.limit(needs_one)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="filter is called without arguments"):
        limiter.request_filter(needs_one)  # type: ignore[type-var]


def test_a_function_that_takes_nothing_is_refused_where_it_gets_something(
    limiter: Limiter,
) -> None:
    for option, given in (
        ("deduct_when", "the response"),
        ("on_breach", "the Decision"),
        ("scope", "the endpoint"),
    ):
        with pytest.raises(ConfigError, match=f"{option} is called with {given}"):
            limiter.limit("5/second", **{option: lambda: True})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="on_breach is called with the Decision"):
        Limiter(on_breach=lambda: None)  # type: ignore[misc,arg-type]


def test_a_function_whose_decorator_fills_in_arguments_is_taken(limiter: Limiter) -> None:
    def with_user(function: Any) -> Any:
        @wraps(function)
        def wrapper() -> str:
            return str(function("alice"))

        return wrapper

    limiter.limit("5/second", key_func=with_user(needs_one))


def test_functions_that_cannot_be_looked_into_are_taken(limiter: Limiter) -> None:
    limiter.limit("5/second", key_func=str, cost=int, exempt_when=bool)


@pytest.mark.parametrize(
    ("method", "meant"), [("PSOT", "POST"), ("psot", "POST"), ("GTE", "GET"), ("PACTH", "PATCH")]
)
def test_a_method_that_is_misspelt_is_refused(limiter: Limiter, method: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"'{method}'.*Did you mean '{meant}'"):
        limiter.limit("5/second", methods=[method])


@pytest.mark.parametrize("method", ["PROPFIND", "PURGE", "QUERY", "LIST", "COPY", "MOVE", "post"])
def test_a_method_of_ones_own_is_taken(limiter: Limiter, method: str) -> None:
    limiter.limit("5/second", methods=[method])(answer())
