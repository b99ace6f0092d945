"""Harmful input from clients and users: sizes, types, copies."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import http_sf
import pytest
from flask import Flask, request
from flask.testing import FlaskClient

from flask_bucket import (
    ConfigError,
    Decision,
    Limit,
    Limiter,
    MemoryStore,
    RateLimitExceeded,
)
from flask_bucket.answers import LimiterUnavailable
from flask_bucket.clients import LONGEST_CACHED, normal_address
from flask_bucket.enforcing import Enforcer
from tests.ext.conftest import answer


def test_long_keys_of_clients_are_not_kept(app: Flask, limiter: Limiter) -> None:
    def key() -> str:
        return request.args["key"]

    app.get("/")(limiter.limit("5/minute", key_func=key)(lambda: "served"))
    client = app.test_client()
    state: Enforcer = app.extensions["flask_bucket"]["bucket"]
    kept: Any = state.bills.kept
    for length in (LONGEST_CACHED, LONGEST_CACHED + 1, 5_000):
        client.get("/", query_string={"key": "x" * length})
    assert kept.cache_info().currsize == 1


def test_bills_that_may_differ_are_not_kept(app: Flask, limiter: Limiter) -> None:
    rules = {
        "/a": limiter.limit(lambda: "5/minute"),
        "/b": limiter.limit("5/minute", cost=lambda: 2),
        "/c": limiter.limit("5/minute", exempt_when=lambda: False),
    }
    for path, limit in rules.items():
        app.add_url_rule(path, path[1:], limit(answer()))
    client = app.test_client()
    for path in ("/a", "/b", "/c"):
        assert client.get(path).headers["X-RateLimit-Limit"] == "5"
    state: Enforcer = app.extensions["flask_bucket"]["bucket"]
    kept: Any = state.bills.kept
    assert kept.cache_info().currsize == 0


def test_long_addresses_are_not_kept(app: Flask, limiter: Limiter) -> None:
    app.get("/")(limiter.limit("5/minute")(lambda: "served"))
    before = normal_address.cache_info().currsize
    address = "x:" * 2_500
    assert app.test_client().get("/", environ_base={"REMOTE_ADDR": address}).status_code == 200
    assert normal_address.cache_info().currsize == before


@pytest.mark.parametrize("switch", ["dry_run", "override_defaults", "per_method"])
@pytest.mark.parametrize("value", ["false", None, 1, lambda: False])
def test_a_switch_is_true_or_false(limiter: Limiter, switch: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=switch):
        limiter.limit("1/day", **{switch: value})


@pytest.mark.parametrize(
    "error",
    [
        RateLimitExceeded(Decision(False, retry_after=2.5), "slow down", "problem"),
        LimiterUnavailable("gone", 1.5, "problem"),
    ],
)
@pytest.mark.parametrize(
    "again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"]
)
def test_errors_can_be_sent_to_another_process(error: Any, again: Any) -> None:
    other = again(error)
    assert type(other) is type(error)
    assert str(other) == str(error)
    assert other.get_body() == error.get_body()
    assert other.get_headers() == error.get_headers()


def test_a_real_cost_beyond_counting_is_the_largest_debt(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    @app.get("/")
    @limiter.limit("1000/minute", cost=100)
    def index() -> str:
        limiter.settle(2**60)
        return "done"

    assert client.get("/").data == b"done"
    assert client.get("/").status_code == 429


@dataclass
class Unhashable:
    answer: str

    def __call__(self) -> str:
        return self.answer


def test_views_and_key_functions_need_not_be_hashable(app: Flask, limiter: Limiter) -> None:
    app.add_url_rule("/free", "free", Unhashable("free"))
    limited = limiter.limit("1/hour", key_func=Unhashable("ann"))(Unhashable("limited"))
    app.add_url_rule("/limited", "limited", limited)
    client = app.test_client()
    assert client.get("/free").data == b"free"
    assert [client.get("/limited").status_code for _ in range(2)] == [200, 429]


def test_what_cannot_be_remembered_cannot_be_exempted(limiter: Limiter) -> None:
    with pytest.raises(ConfigError, match="exempt"):
        limiter.exempt(Unhashable("x"))


def test_any_number_of_blanks_is_one() -> None:
    assert Limit.parse("5 " + " " * 2_000 + "/\n second\tburst   20") == Limit(20, 5)


@pytest.mark.parametrize("text", ["1" + " " * 100_000 + "x", "9" * 5_000 + "/s"])
def test_a_text_without_end_is_told_of_in_short(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Limit.parse(text)
    assert len(str(caught.value)) < 1_500


@pytest.mark.parametrize(
    "number",
    [Decimal("sNaN"), Decimal("NaN"), Decimal("1e-20000"), Decimal("1e20000"), 10**5_000],
    ids=["signalling", "quiet", "small", "large", "whole"],
)
def test_numbers_of_no_use_are_config_errors(number: Any) -> None:
    with pytest.raises(ConfigError):
        Limit(1, number)
    with pytest.raises(ConfigError):
        Limit(number, 1)


@pytest.mark.parametrize("name", ["timeout", "max_connections", "key_prefix", "url"])
def test_an_option_that_has_a_key_of_its_own_is_told_of(name: str) -> None:
    app = Flask(__name__)
    app.config["BUCKET_REDIS_URL"] = "redis://localhost"
    app.config["BUCKET_REDIS_OPTIONS"] = {name: 3}
    with pytest.raises(ConfigError, match="a key of its own"):
        Limiter(app)


def test_huge_capacities_are_valid_structured_fields() -> None:
    app = Flask(__name__)
    app.config["BUCKET_HEADERS"] = "ietf"
    limiter = Limiter(app, redis=MemoryStore())
    app.get("/")(limiter.limit(capacity=10**15, refill_rate=1)(lambda: "served"))
    headers = app.test_client().get("/").headers
    for name in ("RateLimit-Policy", "RateLimit"):
        assert http_sf.parse(headers[name].encode(), tltype="list")


def test_a_limit_without_parentheses_is_told_of(app: Flask, limiter: Limiter) -> None:
    def view() -> str:
        return "served"

    with pytest.raises(ConfigError, match="is written with its limit"):
        app.get("/")(limiter.limit(view))


def test_a_body_from_on_breach_is_a_429(app: Flask, client: FlaskClient) -> None:
    limiter = Limiter(app, name="other", on_breach=lambda decision: "busy")
    app.get("/")(limiter.limit("1/day")(lambda: "served"))
    client.get("/")
    response = client.get("/")
    assert (response.status_code, response.data) == (429, b"busy")
