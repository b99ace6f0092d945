"""Buckets that belong to no view: consume, peek and reset, also outside requests."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from flask_bucket import ConfigError, Limit, Limiter
from tests.ext.conftest import Clock, CountingStore, answer, statuses


def test_a_task_with_an_application_context_can_consume(
    app: Flask, limiter: Limiter, clock: Clock
) -> None:
    with app.app_context():
        decisions = [limiter.consume("2/minute", "alice") for _ in range(3)]
        assert [bool(decision) for decision in decisions] == [True, True, False]
        assert decisions[-1].retry_after == 30.0
        clock.advance(30)
        assert limiter.consume("2/minute", "alice").allowed


def test_a_limit_may_be_given_as_such(app: Flask, limiter: Limiter) -> None:
    with app.app_context():
        limit = Limit(10, 1, name="exports")
        assert limiter.consume(limit, "alice", cost=4).outcomes[0].remaining == 6
        assert limiter.consume(limit, "alice", cost=7).allowed is False
        assert limiter.consume(limit, "alice", cost=11).retry_after is None


def test_clients_and_scopes_have_buckets_of_their_own(app: Flask, limiter: Limiter) -> None:
    with app.app_context():
        for key, scope in (("a", "s"), ("b", "s"), ("a", "t")):
            taken = [limiter.consume("1/minute", key, scope=scope).allowed for _ in range(2)]
            assert taken == [True, False]


def test_the_default_scope_is_manual(app: Flask, limiter: Limiter, buckets: CountingStore) -> None:
    with app.app_context():
        limiter.consume("1/minute", "a:b")
    assert buckets.keys == ["bucket:{a%3Ab}:manual:per-minute"]


def test_peek_answers_what_consume_would_and_takes_nothing(
    app: Flask, limiter: Limiter, buckets: CountingStore
) -> None:
    with app.app_context():
        limiter.consume("5/minute", "a", 2)
        for cost in (3, 4, 6):
            seen = [limiter.peek("5/minute", "a", cost) for _ in range(2)]
            assert seen[0] == seen[1]
            assert seen[0].allowed == (cost == 3)
        assert limiter.consume("5/minute", "a", 3).allowed
    assert buckets.calls.count("take") == 2


def test_a_cost_of_nothing_looks_without_taking(app: Flask, limiter: Limiter) -> None:
    with app.app_context():
        assert [limiter.consume("1/minute", "a", 0).allowed for _ in range(3)] == [True] * 3
        assert limiter.consume("1/minute", "a").allowed


def test_reset_fills_all_buckets_of_one_client(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.add_url_rule("/", "v", limiter.limit("1/minute; 1/hour")(answer()))
    assert statuses(client, "/", 2) == [200, 429]
    with app.app_context():
        limiter.consume("1/minute", "127.0.0.1")
        limiter.consume("1/minute", "other")
        assert limiter.reset("127.0.0.1") == 3
        assert limiter.reset("127.0.0.1") == 0
        assert not limiter.consume("1/minute", "other").allowed
    assert statuses(client, "/", 2) == [200, 429]


def test_reset_takes_the_client_as_its_key_function_returns_it(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.add_url_rule("/", "v", limiter.limit("1/minute", key_func=lambda: "a} {b")(answer()))
    client.get("/")
    with app.app_context():
        assert limiter.reset("a} {b") == 1


def test_an_endpoints_bucket_can_be_looked_at_by_its_scope(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.add_url_rule("/", "search", limiter.limit("5/minute")(answer()))
    client.get("/")
    with app.app_context():
        seen = limiter.peek("5/minute", "127.0.0.1", 0, scope="search")
    assert seen.outcomes[0].remaining == 4


def test_consuming_in_a_view_is_not_the_requests_own_charge(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    @app.get("/")
    def view() -> str:
        allowed = limiter.consume("1/minute", "alice").allowed
        return f"{allowed} {limiter.current}"

    assert [client.get("/").text for _ in range(2)] == ["True None", "False None"]
    assert "X-RateLimit-Limit" not in client.get("/").headers


def test_a_switched_off_limiter_consumes_nothing(
    app: Flask, limiter: Limiter, buckets: CountingStore
) -> None:
    limiter.enabled = False
    with app.app_context():
        assert [limiter.consume("1/minute", "a").allowed for _ in range(2)] == [True, True]
        assert limiter.peek("1/minute", "a").allowed
    assert buckets.calls == []


@pytest.mark.parametrize("call", ["consume", "peek"])
@pytest.mark.parametrize(
    ("limit", "key", "cost", "scope"),
    [
        ("often", "a", 1, "s"),
        (5, "a", 1, "s"),
        (None, "a", 1, "s"),
        ("5/second", None, 1, "s"),
        ("5/second", 7.5, 1, "s"),
        ("5/second", True, 1, "s"),
        ("5/second", b"a", 1, "s"),
        ("5/second", "a", -1, "s"),
        ("5/second", "a", 0.5, "s"),
        ("5/second", "a", True, "s"),
        ("5/second", "a", 1, ""),
        ("5/second", "a", 1, None),
    ],
)
def test_a_call_with_a_wrong_argument_is_refused(
    app: Flask, limiter: Limiter, call: str, limit: Any, key: Any, cost: Any, scope: Any
) -> None:
    with app.app_context(), pytest.raises(ConfigError):
        getattr(limiter, call)(limit, key, cost, scope=scope)


def test_several_limits_are_charged_together(app: Flask, limiter: Limiter) -> None:
    with app.app_context():
        decision = limiter.consume("5/second; 1/minute", "a")
        assert [outcome.remaining for outcome in decision.outcomes] == [4, 0]
        assert not limiter.consume("5/second; 1/minute", "a")
        assert limiter.peek("5/second", "a").outcomes[0].remaining == 3


@pytest.mark.parametrize("client", [None, 7.5, b"alice"])
def test_only_a_client_can_be_reset(app: Flask, limiter: Limiter, client: Any) -> None:
    with app.app_context(), pytest.raises(ConfigError, match="text"):
        limiter.reset(client)


def test_outside_an_application_everything_but_its_state_is_an_error(limiter: Limiter) -> None:
    for call in (limiter.consume, limiter.peek):
        with pytest.raises(RuntimeError, match="application context"):
            call("5/second", "a")
    with pytest.raises(RuntimeError, match="application context"):
        limiter.reset("a")
    assert limiter.current is None
    assert limiter.enabled is True
