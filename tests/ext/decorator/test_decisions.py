"""Where the decision about a request can be read."""

from __future__ import annotations

from typing import Any

from flask import Flask, Response
from flask.testing import FlaskClient

from flask_bucket import Limiter, limit_exceeded
from tests.ext.conftest import answer, statuses


def test_the_current_decision_can_be_read_in_a_view(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    seen: list[Any] = []

    @app.get("/")
    @limiter.limit("5/minute", cost=2)
    def view() -> str:
        seen.append(limiter.current)
        return "fine"

    app.add_url_rule("/free", "free", lambda: str(limiter.current))
    client.get("/")
    assert seen[0].allowed
    assert (seen[0].binding.remaining, seen[0].binding.cost) == (3, 2)
    assert client.get("/free").text == "None"
    assert limiter.current is None


def test_the_current_decision_can_be_read_when_the_request_is_torn_down(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    seen: list[Any] = []
    app.get("/")(limiter.limit("1/minute")(answer()))
    app.teardown_request(lambda error: seen.append(limiter.current))
    statuses(client, "/", 2)
    assert [bool(decision) for decision in seen] == [True, False]


def test_a_signal_tells_of_every_refusal(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    told: list[Any] = []
    app.get("/")(limiter.limit("1/minute")(answer()))

    def note(sender: Flask, limiter: Limiter, decision: Any) -> None:
        told.append((sender, limiter, decision.binding.limit.name))

    with limit_exceeded.connected_to(note, app):
        statuses(client, "/", 3)
    assert told == [(app, limiter, "per-minute")] * 2


def test_response_objects_pass_through(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    app.get("/")(limiter.limit("1/minute")(lambda: Response("made", 201)))
    assert client.get("/").status_code == 201
