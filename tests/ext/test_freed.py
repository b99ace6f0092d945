"""A request is freed when it is answered, without the garbage collector."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask, Response, request, stream_with_context

from flask_bucket import Limiter


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def app() -> Flask:
    return Flask(__name__)


def is_freed(app: Flask, path: str, status: int) -> bool:
    """Return whether nothing is left of a request after its answer."""
    seen: list[weakref.ref[Any]] = []
    app.before_request_funcs.setdefault(None, []).insert(
        0,
        lambda: seen.append(weakref.ref(request._get_current_object())),  # type: ignore[attr-defined]
    )
    with app.test_client() as client:
        assert client.get(path, buffered=True).status_code == status
    del client
    assert seen
    return seen[-1]() is None


def test_a_request_that_is_allowed(app: Flask) -> None:
    limiter = Limiter(app)
    app.get("/")(limiter.limit("5/second")(lambda: "hello"))
    assert is_freed(app, "/", 200)


def test_a_request_that_is_refused(app: Flask) -> None:
    limiter = Limiter(app)
    app.get("/")(limiter.limit("1/hour")(lambda: "hello"))
    app.test_client().get("/")
    assert is_freed(app, "/", 429)


def test_a_request_that_application_limits_refuse(app: Flask) -> None:
    Limiter(app, application_limits=["1/hour"])
    app.get("/")(lambda: "hello")
    app.test_client().get("/")
    assert is_freed(app, "/", 429)


def test_a_refusal_that_on_breach_answers(app: Flask) -> None:
    limiter = Limiter(app, on_breach=lambda decision: ("wait", 503))
    app.get("/")(limiter.limit("1/hour")(lambda: "hello"))
    app.test_client().get("/")
    assert is_freed(app, "/", 503)


def test_a_streamed_body(app: Flask) -> None:
    limiter = Limiter(app)

    @app.get("/")
    @limiter.limit("5/second")
    def stream() -> Response:
        return Response(stream_with_context(iter(["a", "b"])))

    assert is_freed(app, "/", 200)


def test_a_second_limiter(app: Flask) -> None:
    limiter, other = Limiter(app), Limiter(app, name="other")
    app.get("/")(limiter.limit("5/second")(other.limit("1/hour")(lambda: "hello")))
    app.test_client().get("/")
    assert is_freed(app, "/", 429)


def test_a_request_that_held_a_slot(app: Flask) -> None:
    limiter = Limiter(app)

    @app.get("/")
    @limiter.limit("5/second; 5 at once")
    def view() -> str:
        with limiter.limit("2 at once", scope="block"):
            return "hello"

    assert is_freed(app, "/", 200)


@pytest.mark.parametrize("passed", [False, True])
def test_a_request_whose_stream_held_a_slot(app: Flask, passed: bool) -> None:
    limiter = Limiter(app)
    view = limiter.limit("5 at once")
    app.get("/")(view(lambda: Response(iter([b"a", b"b"]), direct_passthrough=passed)))
    assert is_freed(app, "/", 200)


def test_a_request_that_found_no_slot(app: Flask) -> None:
    limiter = Limiter(app)
    app.get("/")(limiter.limit("1 at once")(lambda: Response(iter([b"a", b"b"]))))
    first = app.test_client().get("/")
    assert is_freed(app, "/", 429)
    first.close()
