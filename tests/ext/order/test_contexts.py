"""Requests within requests, in threads, of several Limiters, and those that crash."""

from __future__ import annotations

import pytest
from flask import Flask
from flask.testing import FlaskClient

from flask_bucket import Limiter, MemoryStore
from tests.ext.conftest import Clock, answer, statuses


def test_requests_that_share_an_application_context_share_no_state(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.add_url_rule("/limited", "limited", limiter.limit("1/minute")(answer()))
    app.add_url_rule("/free", "free", lambda: str(limiter.current))
    with app.app_context():
        assert statuses(client, "/limited", 2) == [200, 429]
        free = client.get("/free")
        assert (free.text, free.status_code) == ("None", 200)
        assert "X-RateLimit-Limit" not in free.headers
        assert "Retry-After" not in free.headers


def test_a_request_within_a_request_has_a_state_of_its_own(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.add_url_rule("/inner", "inner", limiter.limit("1/hour")(answer()))

    @app.get("/outer")
    @limiter.limit("9/minute")
    def outer() -> str:
        inner = app.test_client().get("/inner").status_code
        assert limiter.current is not None
        assert limiter.current.binding is not None
        return f"{inner} {limiter.current.binding.limit}"

    assert client.get("/outer").text == "200 9/minute"
    response = client.get("/outer")
    assert (response.text, response.status_code) == ("429 9/minute", 200)
    assert response.headers["X-RateLimit-Remaining"] == "7"


def test_a_copied_request_context_can_be_limited_in_a_thread(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from flask import copy_current_request_context

    helper = limiter.limit("2/minute")(answer("done"))

    @app.get("/")
    def view() -> str:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(copy_current_request_context(helper)).result()

    assert statuses(client, "/", 3) == [200, 200, 429]


def test_two_refusing_limiters_leave_each_others_tokens(app: Flask, clock: Clock) -> None:
    first = Limiter(app, redis=MemoryStore(clock), name="first", default_limits=["9/minute"])
    second = Limiter(app, redis=MemoryStore(clock), name="second", default_limits=["1/hour"])
    app.add_url_rule("/", "v", answer())
    app.add_url_rule("/free", "free", second.exempt(answer()))
    seen: list[int] = []

    @app.teardown_request
    def note(error: BaseException | None) -> None:
        assert first.current is not None
        seen.append(first.current.outcomes[0].remaining)

    client = app.test_client()
    assert statuses(client, "/", 3) == [200, 429, 429]
    assert seen == [8, 8, 8], "one answer, and the refused requests are given back"


@pytest.mark.parametrize("n", range(2))
def test_a_crash_leaves_the_charge_taken(
    app: Flask, limiter: Limiter, client: FlaskClient, n: int
) -> None:
    def crash() -> str:
        raise ZeroDivisionError

    deduct_when = (None, lambda response: False)[n]
    app.add_url_rule("/", "v", limiter.limit("2/minute", deduct_when=deduct_when)(crash))
    assert statuses(client, "/", 3) == [500, 500, 429]


def test_a_crash_that_the_tests_see_leaves_the_charge_taken(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.testing = True

    def crash() -> str:
        raise ZeroDivisionError

    app.add_url_rule("/", "v", limiter.limit("1/minute")(crash))
    with pytest.raises(ZeroDivisionError):
        client.get("/")
    assert statuses(client, "/", 1) == [429]
