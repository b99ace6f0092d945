"""Tokens that return, as deduct_when says."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from flask import Flask, Response, abort, request
from flask.testing import FlaskClient

from flask_bucket import ConfigError, Limiter, Rule
from tests.ext.conftest import CountingStore, answer, remaining, statuses


def failed(response: Response) -> bool:
    return response.status_code == 401


def login() -> str:
    return abort(401) if "wrong" in request.args else "welcome"


def test_only_what_deduct_when_says_is_deducted(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("2/minute", deduct_when=failed)(login))
    assert statuses(client, "/", 5) == [200] * 5
    assert statuses(client, "/?wrong", 3) == [401, 401, 429]


def test_the_headers_tell_of_tokens_that_were_given_back(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("2/minute", deduct_when=failed)(login))
    assert [remaining(client, "/"), remaining(client, "/?wrong")] == [2, 1]


def test_tokens_return_from_an_earlier_limit_although_a_later_one_keeps_its_own(
    app: Flask, buckets: CountingStore, client: FlaskClient
) -> None:
    rule = Rule("5/hour", deduct_when=failed)
    limiter = Limiter(app, redis=buckets, application_limits=rule)
    app.get("/")(limiter.limit("9/minute")(login))
    assert statuses(client, "/", 6) == [200] * 6
    assert statuses(client, "/?wrong", 4) == [401, 401, 401, 429]


def test_tokens_that_were_given_back_stay_so_if_a_later_hook_fails(
    app: Flask, buckets: CountingStore
) -> None:
    @app.after_request
    def fail(response: Response) -> Response:
        assert response.status_code == 500, "not a good answer"
        return response

    limiter = Limiter(app, redis=buckets)

    @app.get("/")
    @limiter.limit("9/minute", deduct_when=failed)
    def view() -> str:
        limiter.settle(5)
        return "welcome"

    assert [remaining(app.test_client(), "/") for _ in range(2)] == [9, 9]
    assert buckets.calls == ["take", "settle"] * 2


def test_ten_concurrent_wrong_passwords_are_one_attempt(app: Flask, limiter: Limiter) -> None:
    together = Barrier(10)
    app.get("/")(limiter.limit("1/minute", deduct_when=failed)(login))

    def attempt() -> int:
        together.wait()
        return app.test_client().get("/?wrong").status_code

    with ThreadPoolExecutor(10) as pool:
        answers = [f.result() for f in [pool.submit(attempt) for _ in range(10)]]
    assert sorted(answers) == [401] + [429] * 9


def test_deduct_when_is_asked_once_and_never_about_a_refusal(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    asked: list[int] = []

    def note(response: Response) -> bool:
        asked.append(response.status_code)
        return True

    app.get("/")(limiter.limit("1/minute; 1/hour", deduct_when=note)(answer()))
    assert statuses(client, "/", 2) == [200, 429]
    assert asked == [200]


def test_deduct_when_sees_what_an_error_handler_answered(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    def crash() -> str:
        raise LookupError

    app.register_error_handler(LookupError, lambda error: ("no such user", 401))
    kept = limiter.limit("1/minute", deduct_when=failed)(crash)
    app.get("/")(kept)
    returned = limiter.limit("1/minute", deduct_when=lambda r: not failed(r))(crash)
    app.add_url_rule("/returned", "returned", returned)
    assert statuses(client, "/", 2) == [401, 429]
    assert statuses(client, "/returned", 3) == [401] * 3


@pytest.mark.parametrize("verdict", [None, 1, "no", b""])
def test_a_deduct_when_that_says_neither_surfaces_and_keeps_the_tokens(
    app: Flask, limiter: Limiter, client: FlaskClient, verdict: Any
) -> None:
    app.get("/")(limiter.limit("3/minute", deduct_when=lambda response: verdict)(login))
    assert statuses(client, "/", 2) == [500, 500]
    app.testing = True
    with pytest.raises(ConfigError, match="expected True to keep"):
        client.get("/")
    app.testing = False
    assert statuses(client, "/", 1) == [429]
