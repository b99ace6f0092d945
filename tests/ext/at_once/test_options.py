"""Options of limits on requests at once, and what else is done with them."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask, Response, request
from flask.testing import FlaskClient

from flask_bucket import AtOnce, ConfigError, Limiter, Rule, limit_exceeded
from flask_bucket.testing import use_clock
from tests.ext.at_once.conftest import at_once
from tests.ext.conftest import CountingStore, in_use, nested, statuses, words


def test_a_dry_run_reports_and_refuses_nothing(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.get("/")(limiter.limit("1 at once", dry_run=True)(nested(app)))
    told: list[Any] = []

    def note(sender: Flask, decision: Any, **_: Any) -> None:
        told.append(decision)

    with limit_exceeded.connected_to(note, app):
        assert at_once(client, 3) == [200] * 3
    assert len(told) == 2
    assert in_use(buckets) == 0


def test_an_exempt_request_holds_nothing(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    rule = Rule("1 at once", exempt_when=lambda: request.args.get("deep") == "1")
    app.get("/")(limiter.limit(rule)(nested(app)))
    assert at_once(client, 2) == [200, 200]
    assert at_once(client, 3) == [200, 429]


def test_only_the_methods_named_hold_slots(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    view = limiter.limit("1 at once", methods=["POST"])(nested(app))
    app.route("/", methods=["GET", "POST"])(view)
    assert at_once(client, 3) == [200] * 3


def test_each_method_has_slots_of_its_own(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.route("/", methods=["GET", "POST"])(
        limiter.limit("1 at once", per_method=True)(nested(app))
    )
    assert client.post("/?deep=2").json == [200, 200]
    assert client.post("/?deep=3").json == [200, 200, 429]


def test_on_breach_answers_a_refusal(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    def busy(decision: Any) -> Any:
        return f"busy: {decision.limit}", 429

    @app.get("/")
    @limiter.limit("1 at once", on_breach=busy)
    def view() -> str:
        return app.test_client().get("/").text

    assert client.get("/").text == "busy: 1 at once"


def test_a_key_of_none_holds_nothing(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    app.get("/")(limiter.limit("1 at once", key_func=lambda: None)(nested(app)))
    assert at_once(client, 3) == [200] * 3


@pytest.mark.parametrize("limit", ["5 at once", "5/second; 5 at once", AtOnce(5)])
def test_nobody_consumes_or_peeks_at_slots_by_hand(
    app: Flask, limiter: Limiter, limit: Any
) -> None:
    with app.app_context():
        for call in (limiter.consume, limiter.peek):
            with pytest.raises(ConfigError, match=r"is for requests: .* in a with statement"):
                call(limit, "alice")


def test_the_status_tells_of_the_slots_that_are_held(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.add_url_rule("/limits", "limits", limiter.status_view)

    @app.get("/")
    @limiter.limit("3 at once", holds=30)
    def view() -> Any:
        return app.test_client().get("/limits").json

    shown: Any = client.get("/").json
    (told,) = shown["buckets"]
    assert (told["name"], told["limit"], told["capacity"]) == ("at-once", "3 at once", 3)
    assert (told["remaining"], told["reset_after"]) == (2, 30)
    shown = client.get("/limits").json
    assert shown["buckets"] == []


def test_a_reset_frees_all_slots(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    @limiter.limit("1 at once")
    def view() -> Any:
        limiter.reset("127.0.0.1")
        return [in_use(buckets)]

    assert client.get("/").json == [0]


def test_slots_are_free_when_a_turned_clock_says_so(app: Flask) -> None:
    limiter = Limiter(app)
    app.get("/")(limiter.limit("1 at once", holds=60)(lambda: Response(words())))
    turned = use_clock(app)
    client = app.test_client()
    assert statuses(client, "/", 2) == [200, 429]
    turned.advance(60)
    assert statuses(client, "/", 1) == [200]


def test_the_current_decision_tells_of_the_slot(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    @app.get("/")
    @limiter.limit("3 at once")
    def view() -> Any:
        assert limiter.current is not None
        (outcome,) = limiter.current.outcomes
        return [outcome.kind, outcome.remaining, outcome.taken]

    assert client.get("/").json == ["slot", 2, 1]
