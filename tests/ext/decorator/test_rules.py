"""The forms of a rule in ``@limiter.limit``."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from flask import Flask, request
from flask.testing import FlaskClient

from flask_bucket import ConfigError, Limit, Limiter
from tests.ext.conftest import Clock, allowed, answer, statuses


def test_a_text_may_hold_several_limits(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    app.get("/")(limiter.limit("1000/hour; 2/minute, 500/day")(answer()))
    assert statuses(client, "/", 3) == [200, 200, 429]


@pytest.mark.parametrize(
    "rule",
    [
        "2/minute",
        Limit(2, 2, 60),
        ["2/minute", "1000/hour"],
        ("1000/hour", Limit(2, 2, 60)),
        lambda: "2/minute",
        lambda: Limit(2, 2, 60),
        lambda: ["1000/hour", "2/minute"],
    ],
)
def test_a_rule_is_a_text_a_limit_a_list_or_a_function(
    app: Flask, limiter: Limiter, client: FlaskClient, rule: Any
) -> None:
    app.get("/")(limiter.limit(rule)(answer()))
    assert allowed(client, "/") == 2


def test_a_limit_may_be_written_in_numbers(
    app: Flask, limiter: Limiter, client: FlaskClient, clock: Clock
) -> None:
    view = limiter.limit(capacity=3, refill_rate=Decimal("0.5"), per=2)(answer())
    app.get("/")(view)
    assert allowed(client, "/") == 3
    clock.advance(4)
    assert allowed(client, "/") == 1


def test_burst_is_the_capacity_of_a_text_that_has_none(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("1/minute", burst=4)(answer()))
    assert allowed(client, "/") == 4


def test_a_function_that_returns_none_means_no_limit_now(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    rules: dict[str, str | None] = {"now": None}
    app.get("/")(limiter.limit(lambda: rules["now"])(answer()))
    assert statuses(client, "/", 3) == [200, 200, 200]
    assert "X-RateLimit-Limit" not in client.get("/").headers
    rules["now"] = "1/minute"
    assert statuses(client, "/", 2) == [200, 429]


def test_a_function_may_ask_about_the_request(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    def plan() -> str:
        return request.headers.get("Plan", "none")

    def by_plan() -> str:
        return "3/minute" if plan() == "gold" else "1/minute"

    app.get("/")(
        limiter.limit(by_plan, key_func=lambda: request.headers.get("Plan", "none"))(answer())
    )
    assert allowed(client, "/", headers={"Plan": "gold"}) == 3
    assert allowed(client, "/") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"rule": "often"},
        {"rule": "5/fortnight"},
        {"rule": ""},
        {"rule": []},
        {"rule": 5},
        {"rule": b"5/second"},
        {"rule": {"5/second"}},
        {},
        {"capacity": 5},
        {"refill_rate": 5},
        {"rule": "5/second", "capacity": 5, "refill_rate": 5},
        {"rule": "5/second", "per": 60},
        {"rule": "5/second burst 10", "burst": 20},
        {"rule": "5/second; 10/minute", "burst": 20},
        {"rule": "5/second", "name": "No Name"},
        {"rule": lambda: "5/second", "name": "No Name"},
        {"rule": lambda: "5/second", "burst": 0},
        {"rule": "5/second", "scope": ""},
        {"rule": "5/second", "scope": 7},
        {"rule": "5/second", "methods": "POST"},
        {"rule": "5/second", "methods": []},
        {"rule": "5/second", "cost": -1},
        {"rule": "5/second", "cost": 1.5},
        {"rule": "5/second", "cost": True},
        {"rule": "5/second", "key_func": "address"},
        {"rule": "5/second", "exempt_when": True},
        {"rule": "5/second", "deduct_when": False},
        {"rule": "5/second", "on_breach": "no"},
        {"rule": "5/second", "error_message": 5},
    ],
)
def test_what_is_no_limit_is_refused_where_it_is_written(
    limiter: Limiter, arguments: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError):
        limiter.limit(**arguments)


def test_a_bad_text_is_named_with_what_was_expected(limiter: Limiter) -> None:
    with pytest.raises(ConfigError, match=r"5/fortnight.*expected"):
        limiter.limit("5/fortnight")
