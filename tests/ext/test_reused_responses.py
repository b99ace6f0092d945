"""A Response object that the application uses again is never changed."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from flask import Flask, Response
from flask.testing import FlaskClient

from flask_bucket import Limiter
from tests.ext.conftest import Clock, CountingStore, answer, statuses

OURS = {"Retry-After", "Cache-Control", "X-RateLimit-Limit", "X-RateLimit-Remaining"}


@pytest.fixture
def busy(app: Flask) -> Response:
    """The one answer to every refusal of an application."""
    made = Response("busy", 429, {"X-Mine": "kept"})
    app.register_error_handler(429, lambda error: made)
    return made


def test_a_handler_s_response_is_told_anew_to_each_client(
    app: Flask, limiter: Limiter, client: FlaskClient, busy: Response, clock: Clock
) -> None:
    app.get("/")(limiter.limit("1/minute")(answer()))
    assert statuses(client, "/", 2) == [200, 429]
    clock.advance(30)
    response = client.get("/")
    assert (response.text, response.headers["Retry-After"]) == ("busy", "30")
    assert response.headers["X-Mine"] == "kept"
    assert OURS.isdisjoint(busy.headers.keys())


def test_a_view_s_response_carries_no_headers_of_an_earlier_client(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    same = Response("fine")
    app.add_url_rule("/limited", "limited", limiter.limit("1/minute")(lambda: same))
    app.add_url_rule("/free", "free", lambda: same)
    assert "X-RateLimit-Remaining" in client.get("/limited").headers
    assert OURS.isdisjoint(client.get("/free").headers.keys())
    assert OURS.isdisjoint(same.headers.keys())


def test_threads_that_answer_with_one_response_tell_each_client_its_own(
    app: Flask, limiter: Limiter
) -> None:
    same = Response("fine")
    app.get("/")(limiter.limit("1000/minute")(lambda: same))
    told: list[int] = []

    def ask(address: str) -> None:
        client = app.test_client()
        for _ in range(50):
            response = client.get("/", environ_overrides={"REMOTE_ADDR": address})
            told.append(int(response.headers["X-RateLimit-Remaining"]))

    threads = [threading.Thread(target=ask, args=[f"203.0.113.{n}"]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == sorted([*range(950, 1000)] * 4)


def test_two_limiters_tell_one_response(app: Flask, buckets: CountingStore) -> None:
    same = Response("fine")
    Limiter(app, redis=buckets, application_limits="9/minute")
    Limiter(app, redis=buckets, application_limits="5/minute", name="other")
    app.get("/")(lambda: same)
    assert app.test_client().get("/").headers["X-RateLimit-Limit"] == "5"
    assert OURS.isdisjoint(same.headers.keys())


def test_a_header_that_a_view_set_is_replaced_whatever_its_case(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    made = Response("fine", headers=[("x-ratelimit-limit", "1"), ("Set-Cookie", "a=1")])
    made.headers.add("Set-Cookie", "b=2")
    app.get("/")(limiter.limit("5/minute")(lambda: made))
    headers = client.get("/").headers
    assert headers.getlist("X-RateLimit-Limit") == ["5"]
    assert headers.getlist("Set-Cookie") == ["a=1", "b=2"]


class Closed:
    """A body that counts how often it is closed."""

    def __init__(self) -> None:
        self.times = 0

    def __iter__(self) -> Any:
        return iter([b"one", b"two"])

    def close(self) -> None:
        self.times += 1


@pytest.mark.parametrize("direct", [True, False])
def test_a_body_is_sent_and_closed_once(
    app: Flask, limiter: Limiter, client: FlaskClient, direct: bool
) -> None:
    body = Closed()
    app.get("/")(limiter.limit("5/minute")(lambda: Response(body, direct_passthrough=direct)))
    with client.get("/") as response:
        assert response.data == b"onetwo"
    assert body.times == 1


class Frozen(Response):
    """A response class whose constructor wants more than ours could give."""

    def __init__(self, *args: Any, version: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.version = version


def test_a_response_class_with_a_constructor_of_its_own_is_kept(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    seen: list[Any] = []

    @app.after_request
    def look(response: Response) -> Response:
        seen.append(response)
        return response

    app.after_request_funcs[None].reverse()  # so that this one runs after the Limiter's
    app.get("/")(limiter.limit("5/minute")(lambda: Frozen("fine", version=3)))
    client.get("/")
    assert isinstance(seen[0], Frozen)
    assert seen[0].version == 3


class Words:
    """A body that can be sent again and again."""

    def __iter__(self) -> Any:
        return iter(["one ", "two"])


def test_a_streamed_response_that_is_used_again_collects_nothing(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    body = Words()
    same = Response(body)
    closed: list[str] = []
    same.call_on_close(lambda: closed.append("closed"))
    app.get("/")(limiter.limit("9/minute")(lambda: same))
    for _ in range(3):
        with client.get("/") as response:
            assert response.data == b"one two"
    assert closed == ["closed"] * 3
    assert (same.response, len(same._on_close)) == (body, 1)
