"""A user's function that returns a bad value causes a clear error, and nothing is charged."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from flask_bucket import ConfigError, Limiter
from tests.ext.conftest import CountingStore, answer, remaining, statuses


def surfaces(app: Flask, limit: Any, buckets: CountingStore, match: str) -> None:
    """Assert that a limit causes a 500, shows its error to tests, and charges nothing."""
    app.add_url_rule("/", "v", limit(answer()))
    client = app.test_client()
    assert client.get("/").status_code == 500
    app.testing = True
    with pytest.raises(ConfigError, match=match):
        client.get("/")
    assert buckets.calls == []


@pytest.mark.parametrize("nothing", [None, "", [], ()])
def test_a_rule_function_that_returns_nothing_means_no_limit_now(
    app: Flask, limiter: Limiter, nothing: Any
) -> None:
    app.add_url_rule("/", "v", limiter.limit(lambda: nothing)(answer()))
    assert statuses(app.test_client(), "/", 2) == [200, 200]


@pytest.mark.parametrize(
    "rule", ["often", " ", 5, b"5/second", b"", object(), True, [None], {"5/s"}]
)
def test_a_rule_function_that_returns_no_limit(
    app: Flask, limiter: Limiter, buckets: CountingStore, rule: Any
) -> None:
    surfaces(app, limiter.limit(lambda: rule), buckets, "limit.*[Ee]xpected")


@pytest.mark.parametrize("cost", [-1, 0.5, "1", None, True, [1]])
def test_a_cost_function_that_returns_no_cost(
    app: Flask, limiter: Limiter, buckets: CountingStore, cost: Any
) -> None:
    surfaces(app, limiter.limit("5/second", cost=lambda: cost), buckets, "whole number of tokens")


@pytest.mark.parametrize("key", [b"alice", 7.0, True, ["alice"], object()])
def test_a_key_function_that_returns_no_text(
    app: Flask, limiter: Limiter, buckets: CountingStore, key: Any
) -> None:
    surfaces(app, limiter.limit("5/second", key_func=lambda: key), buckets, "or None to leave")


def test_the_message_names_the_key_function(
    app: Flask, limiter: Limiter, buckets: CountingStore
) -> None:
    def current_account() -> Any:
        return b"alice"

    limit = limiter.limit("5/second", key_func=current_account)
    surfaces(app, limit, buckets, r"b'alice' came from .*current_account.*Decode bytes")


def test_a_nonsense_key_of_a_default_limit_surfaces_too(app: Flask, buckets: CountingStore) -> None:
    Limiter(app, redis=buckets, key_func=lambda: 7.5, default_limits=["5/second"])  # type: ignore[arg-type,return-value]  # the point of this test
    app.testing = True
    app.add_url_rule("/", "v", answer())
    with pytest.raises(ConfigError, match=r"7.5 came from .*str\(\)"):
        app.test_client().get("/")


@pytest.mark.parametrize("key", [7, uuid.UUID(int=7)])
def test_a_number_or_a_uuid_counts_as_its_text(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore, key: Any
) -> None:
    app.get("/")(limiter.limit("1/minute", key_func=lambda: key)(answer()))
    assert statuses(client, "/", 2) == [200, 429]
    assert buckets.keys[0].startswith(f"bucket:{{{key}}}:")


def test_an_empty_key_is_a_client_like_any_other(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.get("/")(limiter.limit("1/minute", key_func=lambda: "")(answer()))
    assert statuses(client, "/", 2) == [200, 429]
    assert buckets.keys[0].startswith("bucket:{#}:")


def test_a_cost_of_nothing_is_always_allowed_and_takes_nothing(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("3/minute", cost=0)(answer()))
    assert [remaining(client, "/") for _ in range(3)] == [3, 3, 3]


def test_a_cost_above_capacity_is_refused_for_ever_and_takes_nothing(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    costs = iter([4, 4, 3])
    app.get("/")(limiter.limit("3/minute", cost=lambda: next(costs))(answer()))
    assert statuses(client, "/", 2) == [429, 429]
    assert remaining(client, "/") == 0


def test_a_huge_cost_is_refused_for_ever(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    app.get("/")(limiter.limit("3/minute", cost=lambda: 10**30)(answer()))
    response = client.get("/")
    assert response.status_code == 429
    assert "Retry-After" not in response.headers


def test_an_on_breach_that_returns_nonsense_surfaces(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("1/minute", on_breach=lambda decision: 5)(answer()))  # type: ignore[arg-type,return-value]  # what this test is about
    assert statuses(client, "/", 2) == [200, 500]


@pytest.mark.parametrize("filter_", [None, True, "always", 7])
def test_a_request_filter_is_a_function(limiter: Limiter, filter_: Any) -> None:
    with pytest.raises(ConfigError, match="function"):
        limiter.request_filter(filter_)


def test_a_crash_in_a_later_key_function_charges_nothing(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    crash = limiter.limit("9/minute", key_func=lambda: str(1 / 0))
    app.get("/")(crash(limiter.limit("9/hour")(answer())))
    assert statuses(client, "/", 2) == [500, 500]
    assert buckets.calls == []
