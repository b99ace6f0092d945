"""Tokens that return, and costs that are known late."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from threading import Barrier
from typing import Any

import pytest
from flask import Flask, Response, abort, request, send_file, stream_with_context
from flask.testing import FlaskClient
from werkzeug.test import EnvironBuilder

from flask_bucket import ConfigError, Limiter, Rule
from tests.ext.conftest import Clock, CountingStore, answer, remaining, statuses


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


def test_a_streamed_response_can_be_settled_while_it_is_sent(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    @limiter.limit("100/minute", cost=10)
    def view() -> Response:
        def words() -> Iterator[str]:
            for n in range(1, 4):
                limiter.settle(20 * n)
                yield f"word {n} "

        return Response(stream_with_context(words()))

    response = client.get("/")
    assert response.text == "word 1 word 2 word 3 "
    response.close()
    assert buckets.calls == ["take", "settle"]
    assert remaining(client, "/") == 30


def test_a_stream_that_is_passed_through_can_be_settled_too(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    @app.get("/")
    @limiter.limit("100/minute")
    def view() -> Response:
        def words() -> Iterator[bytes]:
            limiter.settle(30)
            yield b"word"

        return Response(stream_with_context(words()), direct_passthrough=True)

    with client.get("/") as response:
        assert response.data == b"word"
    assert remaining(client, "/") == 69


def test_a_file_is_left_to_the_server(app: Flask, limiter: Limiter) -> None:
    """Servers recognise what their own ``wsgi.file_wrapper`` made, and send it faster."""

    class Wrapper:
        def __init__(self, *_: Any) -> None:
            pass

    app.get("/")(limiter.limit("9/minute")(lambda: send_file(BytesIO(b"text"), "text/plain")))
    environ = EnvironBuilder("/").get_environ()
    environ["wsgi.file_wrapper"] = Wrapper
    assert isinstance(app.wsgi_app(environ, lambda *_: lambda _: None), Wrapper)


def test_a_stream_that_is_broken_off_is_settled_as_far_as_it_came(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    @app.get("/")
    @limiter.limit("100/minute")
    def view() -> Response:
        def words() -> Iterator[str]:
            for n in range(1, 100):
                limiter.settle(10 * n)
                yield f"word {n} "

        return Response(stream_with_context(words()))

    response = client.get("/")
    assert next(response.iter_encoded()) == b"word 1 "
    response.close()
    assert remaining(client, "/") == 89


def test_a_stream_that_deducts_nothing_stays_free(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    @limiter.limit("100/minute", deduct_when=lambda response: False)
    def view() -> Response:
        limiter.settle(50)

        def words() -> Iterator[str]:
            limiter.settle(70)
            yield "word"

        return Response(stream_with_context(words()))

    client.get("/").close()
    assert buckets.calls == ["take", "settle"]
    assert remaining(client, "/") == 100


def test_a_streamed_response_that_is_not_settled_costs_one_call(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.get("/")(limiter.limit("9/minute")(lambda: Response(iter(["a", "b"]))))
    client.get("/").close()
    assert buckets.calls == ["take"]


def test_a_response_to_head_is_settled_too(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    @app.get("/")
    @limiter.limit("100/minute")
    def view() -> str:
        limiter.settle(30)
        return "fine"

    assert remaining(client, "/", method="HEAD") == 70
