"""Costs that are known late."""

from __future__ import annotations

import pytest
from flask import Flask, request
from flask.testing import FlaskClient

from flask_bucket import ConfigError, Limiter
from tests.ext.conftest import Clock, CountingStore, answer, remaining, statuses


def test_the_real_cost_replaces_the_estimate(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    @app.get("/")
    @limiter.limit("100/minute", cost=10)
    def view() -> str:
        limiter.settle(int(request.args["cost"]))
        return "fine"

    assert remaining(client, "/?cost=30") == 70
    assert remaining(client, "/?cost=4") == 66
    assert remaining(client, "/?cost=0") == 66


def test_the_last_word_on_the_cost_counts(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    @app.get("/")
    @limiter.limit("100/minute")
    def view() -> str:
        limiter.settle(90)
        limiter.settle(7)
        return "fine"

    assert remaining(client, "/") == 93


def test_settling_may_leave_a_debt(
    app: Flask, limiter: Limiter, client: FlaskClient, clock: Clock
) -> None:
    @app.get("/")
    @limiter.limit("1/second burst 10")
    def view() -> str:
        limiter.settle(25)
        return "fine"

    assert remaining(client, "/") == 0
    refused = client.get("/")
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "16")
    clock.advance(15.999)
    assert statuses(client, "/", 1) == [429]
    clock.advance(0.001)
    assert statuses(client, "/", 1) == [200]


def test_giving_back_never_lifts_a_bucket_above_its_capacity(
    app: Flask, limiter: Limiter, client: FlaskClient, clock: Clock
) -> None:
    @app.get("/")
    @limiter.limit("10/second", cost=9)
    def view() -> str:
        clock.advance(10)
        limiter.settle(0)
        return "fine"

    client.get("/")
    clock.advance(10)
    with app.app_context():
        seen = limiter.peek("10/second", "127.0.0.1", 11, scope="view").outcomes[0]
    assert (seen.allowed, seen.remaining) == (False, 10)


def test_an_application_limit_counts_requests_whatever_the_view_costs(
    app: Flask, buckets: CountingStore
) -> None:
    limiter = Limiter(app, redis=buckets, application_limits=["5/minute"])

    @app.get("/")
    @limiter.limit("1000/minute")
    def view() -> str:
        limiter.settle(400)
        return "fine"

    app.add_url_rule("/other", "other", answer())
    client = app.test_client()
    assert statuses(client, "/", 2) == [200, 200]
    assert remaining(client, "/other") == 2


def test_limits_that_count_requests_are_not_settled_beside_one_with_a_cost(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    @app.get("/")
    @limiter.limit("3/minute")
    @limiter.limit("1000/day", cost=10)
    @limiter.limit("5000/year", cost=lambda: 1)
    def view() -> str:
        limiter.settle(300)
        return "fine"

    assert [remaining(client, "/") for _ in range(3)] == [2, 1, 0]
    with app.app_context():
        day = limiter.peek("1000/day", "127.0.0.1", 0, scope="view").outcomes[0]
        year = limiter.peek("5000/year", "127.0.0.1", 0, scope="view").outcomes[0]
    assert (day.remaining, year.remaining) == (100, 4100)


def test_an_application_limit_alone_is_settled(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets, application_limits=["50/minute"])

    @app.get("/")
    def view() -> str:
        limiter.settle(20)
        return "fine"

    assert remaining(app.test_client(), "/") == 30


def test_a_default_limit_is_settled(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(
        app, redis=buckets, application_limits=["50/minute"], default_limits=["40/minute"]
    )

    @app.get("/")
    def view() -> str:
        limiter.settle(20)
        return "fine"

    assert remaining(app.test_client(), "/") == 20


@pytest.mark.parametrize("cost", [-1, 1.5, None, True, "5"])
def test_a_real_cost_is_a_whole_number(
    app: Flask, limiter: Limiter, client: FlaskClient, cost: int
) -> None:
    app.testing = True

    @app.get("/")
    @limiter.limit("9/minute")
    def view() -> str:
        with pytest.raises(ConfigError, match="whole number"):
            limiter.settle(cost)
        return "fine"

    assert client.get("/").text == "fine"


def test_settling_a_request_without_limits_does_nothing(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    def view() -> str:
        limiter.settle(20)
        return "fine"

    assert statuses(client, "/", 1) == [200]
    assert buckets.calls == []


def test_settling_outside_a_request_is_an_error(limiter: Limiter) -> None:
    with pytest.raises(RuntimeError, match="outside of request context"):
        limiter.settle(5)
