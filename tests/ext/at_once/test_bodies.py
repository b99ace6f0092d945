"""How long a body that is sent later holds its slot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import islice
from typing import Any

import pytest
from flask import (
    Flask,
    Response,
    copy_current_request_context,
    request,
    send_file,
    stream_with_context,
)
from flask.testing import FlaskClient
from werkzeug.test import EnvironBuilder
from werkzeug.wsgi import FileWrapper

from flask_bucket import Limiter, Rule
from tests.ext.conftest import CountingStore, in_use, statuses, words


def client_remaining(app: Flask) -> int:
    return int(app.test_client().get("/").headers["X-RateLimit-Remaining"])


# Bodies.


def streamed(passed: bool) -> Callable[[], Response]:
    return lambda: Response(words(), direct_passthrough=passed)


@pytest.mark.parametrize("passed", [False, True])
def test_a_streamed_response_holds_its_slot_until_it_is_closed(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore, passed: bool
) -> None:
    app.get("/")(limiter.limit("1 at once")(streamed(passed)))
    response = client.get("/")
    assert (in_use(buckets), statuses(client, "/", 1)) == (1, [429])
    response.close()
    assert (in_use(buckets), statuses(client, "/", 1)) == (0, [200])


@pytest.mark.parametrize("passed", [False, True])
def test_a_streamed_response_gives_its_slot_back_when_it_is_read(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore, passed: bool
) -> None:
    app.get("/")(limiter.limit("1 at once")(streamed(passed)))
    for _ in range(2):
        assert client.get("/").data == b"one two"
        assert in_use(buckets) == 0


def test_a_stream_within_its_request_s_context_holds_its_slot(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    @limiter.limit("1 at once")
    def view() -> Response:
        def seen() -> Iterator[str]:
            yield str(in_use(buckets))
            yield str(in_use(buckets))

        return Response(stream_with_context(seen()))

    assert client.get("/").text == "11"
    assert in_use(buckets) == 0


def test_a_stream_that_fails_gives_its_slot_back(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    def broken() -> Iterator[str]:
        yield "one"
        raise OSError("gone")

    app.get("/")(limiter.limit("1 at once")(lambda: Response(broken())))
    response = client.get("/")
    with pytest.raises(OSError, match="gone"):
        assert response.data
    assert in_use(buckets) == 0


def test_a_file_gives_its_slot_back_when_it_is_read(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.get("/")(limiter.limit("1 at once")(lambda: send_file(BytesIO(b"text"), "text/plain")))
    for _ in range(2):
        assert client.get("/").data == b"text"
    assert in_use(buckets) == 0


class Unchangeable(FileWrapper):
    """An iterator like one that is written in C."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "close":
            raise AttributeError("close is read-only")
        super().__setattr__(name, value)


class Measurable(FileWrapper):
    """A file like waitress's, which knows how much of it is left."""

    def __len__(self) -> int:
        return 4


@pytest.mark.parametrize("wrapper", [FileWrapper, Unchangeable, Measurable])
@pytest.mark.parametrize("headers", [{}, {"Range": "bytes=1-2"}])
def test_a_file_of_the_server_gives_its_slot_back_when_it_is_closed(
    app: Flask, limiter: Limiter, buckets: CountingStore, wrapper: Any, headers: Any
) -> None:
    body = BytesIO(b"text")
    app.get("/")(limiter.limit("1 at once")(lambda: send_file(body, "text/plain")))
    environ = EnvironBuilder("/", headers=headers).get_environ()
    environ["wsgi.file_wrapper"] = wrapper
    sent: Any = app.wsgi_app(environ, lambda *_: lambda _: None)
    assert in_use(buckets) == 1
    next(iter(sent))
    sent.close()
    assert (in_use(buckets), body.closed) == (0, True)


def shouting(response: Response) -> Response:
    parts: Any = response.response
    response.response = (part.upper() for part in parts)
    return response


def shouting_anew(response: Response) -> Response:
    parts: Any = response.response
    return Response(part.upper() for part in parts)


def cached(response: Response) -> Response:
    response.set_data(b"ONE TWO")
    return response


@pytest.mark.parametrize("parts", [0, 1, 2])
@pytest.mark.parametrize("hook", [shouting, shouting_anew, cached])
def test_a_body_that_a_later_hook_changes_gives_the_slot_back_when_it_is_closed(
    app: Flask, buckets: CountingStore, hook: Any, parts: int
) -> None:
    """Some generators close what they read from, and others do not."""
    app.after_request(hook)
    limiter = Limiter(app, redis=buckets)
    app.get("/")(limiter.limit("1 at once")(streamed(False)))
    environ = EnvironBuilder("/").get_environ()
    sent: Any = app.wsgi_app(environ, lambda *_: lambda _: None)
    assert in_use(buckets) == 1
    assert b"ONE TWO".startswith(b"".join(islice(sent, parts)))
    sent.close()
    assert in_use(buckets) == 0


@pytest.mark.parametrize("hook", [shouting, shouting_anew, cached])
def test_a_body_that_a_later_hook_changes_gives_the_slot_back_when_it_is_read(
    app: Flask, buckets: CountingStore, hook: Any
) -> None:
    app.after_request(hook)
    limiter = Limiter(app, redis=buckets)
    app.get("/")(limiter.limit("1 at once")(streamed(False)))
    assert app.test_client().get("/").data == b"ONE TWO"
    assert in_use(buckets) == 0


def test_an_error_that_is_streamed_holds_its_slot(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    lost = {"Content-Length": "7"}
    app.get("/")(limiter.limit("1 at once")(lambda: Response(words(), 404, lost)))
    response = client.get("/")
    assert (response.status_code, in_use(buckets)) == (404, 1)
    response.close()
    assert in_use(buckets) == 0


def test_a_request_that_is_handed_to_another_application_holds_a_slot_of_each(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    inner = Flask("inner")
    inner_limiter = Limiter(inner, redis=buckets, application_limits=Rule("5 at once", scope="i"))
    inner.get("/")(inner_limiter.limit("5 at once")(streamed(False)))

    @app.get("/")
    @limiter.limit("2 at once", scope="o")
    def view() -> Response:
        body: Any = inner.wsgi_app(request.environ, lambda *_: lambda _: None)
        return Response(body)

    response = client.get("/")
    assert in_use(buckets) == 3
    assert (response.data, in_use(buckets)) == (b"one two", 0)


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)], ids=str)
def test_a_body_that_is_never_sent_holds_nothing(
    app: Flask,
    limiter: Limiter,
    client: FlaskClient,
    buckets: CountingStore,
    method: str,
    status: int,
) -> None:
    app.get("/")(limiter.limit("1 at once")(lambda: Response(words(), status)))
    client.open("/", method=method)
    assert in_use(buckets) == 0


def test_the_cost_of_a_file_is_settled_when_it_is_closed(
    app: Flask, limiter: Limiter, buckets: CountingStore
) -> None:
    settle: Any = None

    class Metered(BytesIO):
        def close(self) -> None:
            settle(self.tell())
            super().close()

    @app.get("/")
    @limiter.limit("100/minute")
    def view() -> Response:
        nonlocal settle
        settle = copy_current_request_context(limiter.settle)
        return send_file(Metered(b"four"), "text/plain")

    environ = EnvironBuilder("/", environ_base={"REMOTE_ADDR": "127.0.0.1"}).get_environ()
    environ["wsgi.file_wrapper"] = FileWrapper
    sent: Any = app.wsgi_app(environ, lambda *_: lambda _: None)
    assert list(sent) == [b"four"]
    sent.close()
    assert buckets.calls == ["take", "settle"]
    assert client_remaining(app) == 95
