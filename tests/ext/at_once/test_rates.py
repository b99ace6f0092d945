"""Limits on requests at once beside rates."""

from __future__ import annotations

from typing import Any

from flask import Flask
from flask.testing import FlaskClient

from flask_bucket import Limiter, Rule, limit_low
from tests.ext.at_once.conftest import at_once
from tests.ext.conftest import CountingStore, answer, in_use, nested, statuses


def test_a_rate_beside_it_is_charged_in_the_same_call(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.get("/")(limiter.limit("10/second; 3 at once")(answer()))
    client.get("/")
    assert buckets.calls == ["take", "settle"]


def test_a_refusal_for_want_of_a_slot_takes_no_token(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("5/minute; 1 at once")(nested(app)))
    assert at_once(client, 2) == [200, 429]
    assert client.get("/").headers["X-RateLimit-Remaining"] == "3"


def test_a_refusal_for_want_of_a_token_holds_no_slot(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.get("/")(limiter.limit("1/minute; 9 at once")(answer()))
    assert statuses(client, "/", 3) == [200, 429, 429]
    assert in_use(buckets) == 0


def test_a_slot_taken_earlier_is_given_back_by_a_later_refusal_in_its_call(
    app: Flask, buckets: CountingStore
) -> None:
    limiter = Limiter(app, redis=buckets, application_limits="5 at once")
    app.get("/")(limiter.limit("1/minute")(answer()))
    client = app.test_client()
    assert statuses(client, "/", 2) == [200, 429]
    assert buckets.calls == ["take", "take", "settle", "take", "take"]
    assert in_use(buckets) == 0


def test_what_is_settled_and_the_slot_go_back_in_one_call(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    @limiter.limit("100/minute; 3 at once", cost=10)
    def view() -> str:
        limiter.settle(25)
        return "fine"

    assert client.get("/").headers["X-RateLimit-Remaining"] == "75"
    assert buckets.calls == ["take", "settle"]
    assert in_use(buckets) == 0


def test_deduct_when_concerns_the_tokens_alone(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    rule = Rule("2/minute; 3 at once", deduct_when=lambda response: False)
    app.get("/")(limiter.limit(rule)(answer()))
    assert statuses(client, "/", 4) == [200] * 4
    assert in_use(buckets) == 0


def test_only_the_rate_beside_it_is_reported_as_low(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("9/minute; 1 at once", low=0.5)(answer()))
    told: list[str] = []

    def note(sender: Flask, outcome: Any, **_: Any) -> None:
        told.append(outcome.limit.name)

    with limit_low.connected_to(note, app):
        statuses(client, "/", 9)
    assert told == ["per-minute"]


def test_a_request_that_forgets_its_buckets_keeps_its_slot(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    @limiter.limit("2/minute; 1 at once")
    def view() -> str:
        limiter.reset_current()
        return str(in_use(buckets))

    assert [client.get("/").text for _ in range(4)] == ["1"] * 4


def test_two_limits_that_share_slots_hold_one_for_a_request(
    app: Flask, buckets: CountingStore
) -> None:
    rule = Rule("1 at once", scope="s")
    limiter = Limiter(app, redis=buckets, application_limits=rule)
    app.get("/")(limiter.limit(rule)(nested(app)))
    assert at_once(app.test_client(), 2) == [200, 429]
    assert in_use(buckets) == 0


def test_two_limiters_of_one_application_hold_slots_of_their_own(
    app: Flask, buckets: CountingStore
) -> None:
    Limiter(app, redis=buckets, application_limits="9 at once")
    Limiter(app, redis=buckets, name="second", application_limits="1 at once")
    app.get("/")(nested(app))
    assert at_once(app.test_client(), 2) == [200, 429]
    assert in_use(buckets) == 0
