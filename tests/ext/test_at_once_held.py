"""How long a request, its body, its blocks and its threads hold a slot."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from itertools import islice
from threading import Barrier, Event
from typing import Any

import pytest
from flask import (
    Flask,
    Response,
    abort,
    copy_current_request_context,
    request,
    send_file,
    stream_with_context,
)
from flask.signals import request_tearing_down
from flask.testing import FlaskClient
from werkzeug.test import EnvironBuilder
from werkzeug.wsgi import FileWrapper

from flask_bucket import (
    Limiter,
    RateLimitExceeded,
    Rule,
)
from flask_bucket.bodies import Watched
from tests.ext.conftest import Clock, CountingStore, answer, in_use, nested, statuses, words


def fail(*_: Any) -> Any:
    raise ZeroDivisionError


def client_remaining(app: Flask) -> int:
    return int(app.test_client().get("/").headers["X-RateLimit-Remaining"])


# Requests.


@pytest.mark.parametrize("ending", [lambda: abort(404), fail, lambda: "fine"])
def test_a_slot_is_given_back_however_the_view_ends(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore, ending: Any
) -> None:
    def view() -> Any:
        assert in_use(buckets) == 1
        return ending()

    app.get("/")(limiter.limit("1 at once")(view))
    client.get("/")
    assert in_use(buckets) == 0


def test_a_slot_is_given_back_by_a_request_that_a_later_hook_answers(
    app: Flask, buckets: CountingStore
) -> None:
    Limiter(app, redis=buckets, application_limits="1 at once")
    app.before_request(lambda: ("closed", 503))
    assert statuses(app.test_client(), "/", 2) == [503, 503]
    assert in_use(buckets) == 0


def test_a_slot_is_given_back_by_a_request_without_an_answer(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.get("/")(limiter.limit("1 at once")(fail))
    app.testing = True
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            client.get("/")
    assert in_use(buckets) == 0


def test_a_slot_is_given_back_if_a_hook_fails_after_a_stream_was_made(
    app: Flask, buckets: CountingStore
) -> None:
    app.after_request(fail)  # called last
    limiter = Limiter(app, redis=buckets)
    app.get("/")(limiter.limit("1 at once")(lambda: Response(iter(["a"]))))
    assert statuses(app.test_client(), "/", 2) == [500, 500]
    assert in_use(buckets) == 0


def test_a_slot_is_free_after_its_time_although_nobody_gave_it_back(
    app: Flask, limiter: Limiter, client: FlaskClient, clock: Clock
) -> None:
    def view() -> Any:
        clock.advance(float(request.args.get("after", 0)))
        return nested(app)()

    app.get("/")(limiter.limit("1 at once", holds=5)(view))
    assert client.get("/?deep=2&after=4.9").json == [200, 429]
    assert client.get("/?deep=2&after=5").json == [200, 200]


def test_a_slot_that_was_over_is_not_given_back_for_another(
    app: Flask, limiter: Limiter, client: FlaskClient, clock: Clock, buckets: CountingStore
) -> None:
    """The late request ends while another one holds the only slot."""

    def late() -> str:
        clock.advance(6)
        other = app.test_client().get("/stream")
        assert in_use(buckets) == 1
        app.extensions["other"] = other
        return "late"

    app.get("/")(limiter.limit("1 at once", holds=5, scope="s")(late))
    stream = limiter.limit("1 at once", holds=5, scope="s")
    app.get("/stream")(stream(lambda: Response(iter(["a", "b"]))))
    assert client.get("/").status_code == 200
    assert in_use(buckets) == 1
    app.extensions["other"].close()
    assert in_use(buckets) == 0


class Stopped(BaseException):
    """As a server's own, which no handler of errors sees."""


@pytest.mark.parametrize("error", [ZeroDivisionError, Stopped])
@pytest.mark.parametrize("body", [lambda: "fine", lambda: Response(iter(["a"]))])
def test_a_slot_is_given_back_by_a_request_whose_answer_is_lost(
    app: Flask, buckets: CountingStore, error: type[BaseException], body: Any
) -> None:
    @app.after_request
    def lose(response: Response) -> Response:  # called last
        assert response.status_code == 200
        raise error

    limiter = Limiter(app, redis=buckets)
    app.get("/")(limiter.limit("1 at once")(body))
    app.testing = True
    with pytest.raises(error):
        app.test_client().get("/")
    assert in_use(buckets) == 0


def test_a_slot_is_given_back_although_a_teardown_function_fails(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.teardown_request(fail)
    app.teardown_appcontext(fail)
    app.get("/")(limiter.limit("1 at once")(lambda: abort(404)))
    app.testing = True
    app.config["TRAP_HTTP_EXCEPTIONS"] = True
    with pytest.raises(ZeroDivisionError):
        client.get("/")
    assert in_use(buckets) == 0


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
    """As one that is written in C."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "close":
            raise AttributeError("close is read-only")
        super().__setattr__(name, value)


class Measurable(FileWrapper):
    """As waitress's, which knows how much of it is left."""

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


# Blocks and functions within a view.


def test_a_block_holds_a_slot_while_it_runs(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    def view() -> Any:
        with limiter.limit("2 at once", scope="export"):
            held = in_use(buckets)
        return [held, in_use(buckets)]

    assert client.get("/").json == [1, 0]
    assert buckets.calls == ["take", "settle"]


def test_a_block_that_fails_gives_its_slot_back(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    def view() -> Any:
        with pytest.raises(LookupError), limiter.limit("2 at once", scope="export"):
            raise LookupError
        return [in_use(buckets)]

    assert client.get("/").json == [0]


def test_an_inner_block_does_not_free_the_outer_one(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    block = limiter.limit("1 at once", scope="export")

    @app.get("/")
    def view() -> Any:
        with block:
            with block:
                inner = in_use(buckets)
            return [inner, in_use(buckets)]

    assert client.get("/").json == [1, 1]
    assert in_use(buckets) == 0


def test_a_block_does_not_free_what_its_view_holds(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    @limiter.limit("1 at once", scope="export")
    def view() -> Any:
        with limiter.limit("1 at once", scope="export"):
            pass
        return [in_use(buckets)]

    assert client.get("/").json == [1]
    assert in_use(buckets) == 0


def test_a_block_that_is_refused_leaves_the_view_to_answer(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    @limiter.limit("5/minute; 5 at once")
    def view() -> Any:
        try:
            with limiter.limit("1 at once", scope="export"):
                return nested(app)()
        except RateLimitExceeded:
            return [in_use(buckets)]  # both requests', and the outer one's block

    assert client.get("/?deep=2").json == [200, 3]
    assert in_use(buckets) == 0


def test_a_function_that_a_view_calls_twice_holds_one_slot_until_the_answer(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    export: Any = limiter.limit("1 at once")(lambda: in_use(buckets))
    app.get("/")(lambda: [export(), export()])
    assert client.get("/").json == [1, 1]
    assert in_use(buckets) == 0


def test_a_block_outside_of_a_request_is_not_limited(limiter: Limiter) -> None:
    with limiter.limit("1 at once", scope="export"), limiter.limit("1 at once", scope="export"):
        pass


# Threads.


def test_threads_that_share_a_block_s_limit_hold_a_slot_each(
    app: Flask, limiter: Limiter, buckets: CountingStore
) -> None:
    block, together = limiter.limit("3 at once", scope="block"), Barrier(3)

    @app.get("/")
    def view() -> list[int]:
        with block:
            together.wait()
            held = in_use(buckets)
            together.wait()
        return [held]

    with ThreadPoolExecutor(3) as pool:
        got = [pool.submit(lambda: app.test_client().get("/").json) for _ in range(3)]
    assert [future.result() for future in got] == [[3]] * 3
    assert in_use(buckets) == 0


@pytest.mark.parametrize("same_thread", [True, False])
def test_a_thread_with_a_copy_of_the_request_does_not_free_its_slot(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore, same_thread: bool
) -> None:
    @app.get("/")
    @limiter.limit("1 at once")
    def view() -> list[int]:
        work: Any = copy_current_request_context(lambda: in_use(buckets))
        if same_thread:
            return [work(), in_use(buckets)]
        with ThreadPoolExecutor(1) as pool:
            return [pool.submit(work).result(), in_use(buckets)]

    assert client.get("/").json == [1, 1]
    assert in_use(buckets) == 0


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads that interrupt each other nearly everywhere."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
def test_threads_of_one_request_give_back_all_that_their_blocks_held(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    def view() -> list[int]:
        def work(n: int) -> None:
            for _ in range(50):
                with limiter.limit("9 at once", scope=f"query-{n}"):
                    pass

        with ThreadPoolExecutor(8) as pool:
            working = [pool.submit(copy_current_request_context(work), n) for n in range(8)]
        for future in working:
            future.result()
        return [in_use(buckets)]

    assert [client.get("/").json for _ in range(5)] == [[0]] * 5


@pytest.mark.parametrize("kind", ["block", "function"])
def test_a_copy_of_the_request_that_asks_first_frees_no_slot_of_the_others(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore, kind: str
) -> None:
    """The copy is torn down while the request is in a block."""
    asked, done = Event(), Event()

    @app.get("/")
    def view() -> list[int]:
        @copy_current_request_context
        def work() -> None:
            if kind == "function":
                limiter.limit("9 at once")(answer())()
            else:
                with limiter.limit("9 at once", scope="lookup"):
                    pass
            asked.set()
            done.wait()

        with ThreadPoolExecutor(1) as pool:
            working = pool.submit(work)
            asked.wait()
            before = in_use(buckets)
            with limiter.limit("1 at once", scope="query"):
                done.set()
                working.result()
                within = in_use(buckets)
        return [before, within, in_use(buckets)]

    asked_for = 1 if kind == "function" else 0
    assert client.get("/").json == [asked_for, asked_for + 1, asked_for]
    assert in_use(buckets) == 0


def test_a_thread_that_goes_on_after_its_request_gives_back_what_it_asks_for(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    @limiter.limit("5 at once", scope="view")
    def view() -> str:
        later.append(copy_current_request_context(limiter.limit("5 at once")(seen)))
        return "fine"

    def seen() -> int:
        return in_use(buckets)

    later: list[Any] = []
    client.get("/")
    assert in_use(buckets) == 0
    assert (later[0](), in_use(buckets)) == (1, 0)


# Contexts that are made by hand.


def test_contexts_are_watched_only_once_one_that_was_made_by_hand_asks_for_a_slot(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.add_url_rule("/", "slot", limiter.limit("5 at once")(answer()))
    client.get("/")
    assert not list(request_tearing_down.receivers_for(app))
    for _ in range(2):
        with app.test_request_context():
            app.dispatch_request()
            assert in_use(buckets) == 1
        assert in_use(buckets) == 0
    assert len(list(request_tearing_down.receivers_for(app))) == 1


def test_a_copy_of_a_context_that_was_made_by_hand_frees_nothing(
    app: Flask, limiter: Limiter, buckets: CountingStore
) -> None:
    app.get("/")(limiter.limit("5 at once")(answer()))
    with app.test_request_context():
        app.dispatch_request()
        copy_current_request_context(answer())()
        assert in_use(buckets) == 1
    assert in_use(buckets) == 0


def test_several_limiters_watch_an_application_once() -> None:
    app = Flask("app")
    for name in ("one", "two"):
        Limiter(app, name=name)
    assert isinstance(app.wsgi_app, Watched)
    assert not isinstance(app.wsgi_app.wsgi_app, Watched)
