"""Costs of a body that is sent later."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any

from flask import Flask, Response, send_file, stream_with_context
from flask.testing import FlaskClient
from werkzeug.test import EnvironBuilder

from flask_bucket import Limiter
from tests.ext.conftest import CountingStore, remaining


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
