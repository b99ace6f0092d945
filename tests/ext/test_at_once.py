"""Limits on requests at once: who holds a slot, for how long, and what a refusal says."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from itertools import islice
from threading import Barrier, Event, Semaphore
from typing import Any

import pytest
from flask import (
    Blueprint,
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
from flask.views import MethodView
from werkzeug.test import EnvironBuilder
from werkzeug.wsgi import FileWrapper

from flask_bucket import (
    AtOnce,
    ConfigError,
    Limiter,
    RateLimitExceeded,
    Rule,
    limit_exceeded,
    limit_low,
)
from flask_bucket.testing import use_clock
from tests.ext.conftest import Clock, CountingStore, answer, statuses


def in_use(buckets: CountingStore) -> int:
    """Return how many slots are held, whoever holds them."""
    now = buckets._clock()
    holders = [kept for kept in buckets._states.values() if isinstance(kept, Mapping)]
    return sum(free > now for held in holders for free in held.values())


def nested(app: Flask) -> Callable[[], Any]:
    """Return a view that sends the next of ?deep requests while it runs, and lists all statuses."""

    def view() -> Any:
        deep = int(request.args.get("deep", 1))
        if deep <= 1:
            return [200]
        inner: Any = app.test_client().get(request.path, query_string={"deep": deep - 1})
        return [200, *(inner.json if inner.status_code == 200 else [inner.status_code])]

    return view


def fail(*_: Any) -> Any:
    raise ZeroDivisionError


def at_once(client: FlaskClient, deep: int, path: str = "/") -> list[int]:
    """Return the statuses of so many requests that run at the same time."""
    response: Any = client.get(path, query_string={"deep": deep})
    return list(response.json) if response.status_code == 200 else [response.status_code]


def client_remaining(app: Flask) -> int:
    return int(app.test_client().get("/").headers["X-RateLimit-Remaining"])


# How many.


def test_no_more_requests_run_at_once_than_the_limit_says(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.get("/")(limiter.limit("3 at once")(nested(app)))
    assert at_once(client, 3) == [200, 200, 200]
    assert at_once(client, 4) == [200, 200, 200, 429]
    assert in_use(buckets) == 0


def test_requests_one_after_another_are_all_allowed(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.get("/")(limiter.limit("1 at once")(answer()))
    assert statuses(client, "/", 5) == [200] * 5
    assert buckets.calls == ["take", "settle"] * 5


def test_a_value_does_what_its_text_does(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    app.get("/")(limiter.limit(AtOnce(2))(nested(app)))
    assert at_once(client, 3) == [200, 200, 429]


def test_each_client_has_slots_of_its_own(app: Flask, limiter: Limiter) -> None:
    def view() -> str:
        other = app.test_client().get("/leaf", headers={"X-Key": request.args["other"]})
        return str(other.status_code)

    rule = Rule("1 at once", key_func=lambda: request.headers["X-Key"], scope="both")
    app.get("/")(limiter.limit(rule)(view))
    app.add_url_rule("/leaf", "leaf", limiter.limit(rule)(answer()))
    client = app.test_client()
    assert client.get("/?other=b", headers={"X-Key": "a"}).text == "200"
    assert client.get("/?other=a", headers={"X-Key": "a"}).text == "429"


@pytest.mark.parametrize("where", ["application_limits", "default_limits"])
def test_settings_limit_requests_at_once(app: Flask, buckets: CountingStore, where: Any) -> None:
    options: dict[str, Any] = {where: "2 at once"}
    Limiter(app, redis=buckets, **options)
    app.get("/")(nested(app))
    assert at_once(app.test_client(), 3) == [200, 200, 429]


def test_a_method_of_a_class_is_limited_at_once(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    class Export(MethodView):
        get = staticmethod(limiter.limit("1 at once")(nested(app)))

    app.add_url_rule("/", view_func=Export.as_view("export"))
    assert at_once(client, 2) == [200, 429]


def test_a_function_returns_how_many(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    app.get("/")(limiter.limit(lambda: request.args.get("plan", "2 at once"))(nested(app)))
    assert at_once(client, 3) == [200, 200, 429]


@pytest.mark.parametrize(
    "options",
    [{"cost": lambda: 2}, {"deduct_when": lambda response: False}, {"lease": 0.5}, {"low": 0.5}],
    ids=list,
)
def test_a_function_returns_no_slots_beside_options_of_tokens(
    app: Flask, limiter: Limiter, client: FlaskClient, options: Any
) -> None:
    app.testing = True
    app.get("/")(limiter.limit(lambda: request.args["plan"], **options)(answer()))
    assert client.get("/?plan=5/second").status_code == 200
    for plan in ("2 at once", "5/second; 2 at once"):
        if plan == "2 at once" or "lease" in options:
            with pytest.raises(ConfigError, match=next(iter(options))):
                client.get("/", query_string={"plan": plan})
        else:
            assert client.get("/", query_string={"plan": plan}).status_code == 200


def test_a_slot_and_a_bucket_of_one_name_are_two(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    rule = Rule(["9/minute", AtOnce(1)], name="same", scope="s")
    app.get("/")(limiter.limit(rule)(answer()))
    assert statuses(client, "/", 2) == [200, 200]


def test_a_name_moves_between_a_rate_and_a_slot(app: Flask, buckets: CountingStore) -> None:
    for n, rule in enumerate(("5/minute", "5 at once", "5/minute")):
        other = Flask("other")
        Limiter(other, redis=buckets, application_limits=Rule(rule, name="n"))
        assert other.test_client().get("/").status_code == 404, n
    assert [key.rpartition(":")[2] for key in buckets.keys] == ["n", "@n", "n"]


# For how long.


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


def words() -> Iterator[bytes]:
    yield b"one "
    yield b"two"


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


# Beside rates.


def test_a_rate_beside_it_is_charged_in_the_same_call(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.get("/")(limiter.limit("10/second; 3 at once")(answer()))
    client.get("/")
    assert buckets.calls == ["take", "settle"]


def test_a_refusal_for_want_of_a_slot_takes_no_token(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("5/minute; 1 at once")(nested(app)))
    assert at_once(client, 2) == [200, 429]
    assert client.get("/").headers["X-RateLimit-Remaining"] == "3"


def test_a_refusal_for_want_of_a_token_holds_no_slot(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.get("/")(limiter.limit("1/minute; 9 at once")(answer()))
    assert statuses(client, "/", 3) == [200, 429, 429]
    assert in_use(buckets) == 0


def test_a_slot_taken_earlier_is_given_back_by_a_later_refusal_in_its_call(
    app: Flask, buckets: CountingStore
) -> None:
    limiter = Limiter(app, redis=buckets, application_limits="5 at once")
    app.get("/")(limiter.limit("1/minute")(answer()))
    client = app.test_client()
    assert statuses(client, "/", 2) == [200, 429]
    assert buckets.calls == ["take", "take", "settle", "take", "take"]
    assert in_use(buckets) == 0


def test_what_is_settled_and_the_slot_go_back_in_one_call(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    @limiter.limit("100/minute; 3 at once", cost=10)
    def view() -> str:
        limiter.settle(25)
        return "fine"

    assert client.get("/").headers["X-RateLimit-Remaining"] == "75"
    assert buckets.calls == ["take", "settle"]
    assert in_use(buckets) == 0


def test_deduct_when_concerns_the_tokens_alone(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    rule = Rule("2/minute; 3 at once", deduct_when=lambda response: False)
    app.get("/")(limiter.limit(rule)(answer()))
    assert statuses(client, "/", 4) == [200] * 4
    assert in_use(buckets) == 0


def test_only_the_rate_beside_it_is_reported_as_low(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("9/minute; 1 at once", low=0.5)(answer()))
    told: list[str] = []

    def note(sender: Flask, outcome: Any, **_: Any) -> None:
        told.append(outcome.limit.name)

    with limit_low.connected_to(note, app):
        statuses(client, "/", 9)
    assert told == ["per-minute"]


def test_a_request_that_forgets_its_buckets_keeps_its_slot(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    @limiter.limit("2/minute; 1 at once")
    def view() -> str:
        limiter.reset_current()
        return str(in_use(buckets))

    assert [client.get("/").text for _ in range(4)] == ["1"] * 4


def test_two_limits_that_share_slots_hold_one_for_a_request(
    app: Flask, buckets: CountingStore
) -> None:
    rule = Rule("1 at once", scope="s")
    limiter = Limiter(app, redis=buckets, application_limits=rule)
    app.get("/")(limiter.limit(rule)(nested(app)))
    assert at_once(app.test_client(), 2) == [200, 429]
    assert in_use(buckets) == 0


def test_two_limiters_of_one_application_hold_slots_of_their_own(
    app: Flask, buckets: CountingStore
) -> None:
    Limiter(app, redis=buckets, application_limits="9 at once")
    Limiter(app, redis=buckets, name="second", application_limits="1 at once")
    app.get("/")(nested(app))
    assert at_once(app.test_client(), 2) == [200, 429]
    assert in_use(buckets) == 0


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


# What a refusal says.


@pytest.fixture
def refusal(app: Flask, limiter: Limiter, client: FlaskClient) -> Any:
    """A refusal for want of a slot, half a second after the slot was taken."""
    clock: Clock = limiter._registry.redis._clock  # type: ignore[attr-defined]  # the store's

    @app.get("/")
    @limiter.limit("1 at once", holds=20)
    def view() -> str:
        clock.advance(0.5)
        app.extensions["refusal"] = app.test_client().get("/")
        return "fine"

    app.extensions["allowed"] = client.get("/")
    return app.extensions["refusal"]


def test_a_refused_client_may_ask_again_after_a_second(refusal: Any, clock: Clock) -> None:
    assert refusal.status_code == 429
    assert refusal.json == {"error": "Too Many Requests", "retryAfterMs": 1000}
    headers = refusal.headers
    assert headers["Retry-After"] == "1"
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-RateLimit-Limit"] == "1"
    assert headers["X-RateLimit-Remaining"] == "0"
    assert headers["X-RateLimit-Reset"] == str(clock.now // 1_000_000 + 20)


def test_a_response_that_slots_alone_allowed_has_no_rate_headers(app: Flask, refusal: Any) -> None:
    allowed = app.extensions["allowed"]
    assert allowed.status_code == 200
    assert not [name for name, _ in allowed.headers if "RateLimit" in name]


def test_style_ietf_names_the_unit(app: Flask) -> None:
    app.config["BUCKET_HEADERS"] = ["ietf"]
    limiter = Limiter(app)
    app.add_url_rule("/", "both", limiter.limit("10/second; 5 at once")(answer()))

    @app.get("/one")
    @limiter.limit("1 at once")
    def view() -> str:
        app.extensions["refusal"] = app.test_client().get("/one")
        return "fine"

    headers = app.test_client().get("/").headers
    assert headers["RateLimit-Policy"] == (
        '"per-second";q=10;w=1, "at-once";q=5;qu="concurrent-requests"'
    )
    assert headers["RateLimit"] == '"per-second";r=9;t=1, "at-once";r=4'
    app.test_client().get("/one")
    headers = app.extensions["refusal"].headers
    assert headers["RateLimit-Policy"] == '"at-once";q=1;qu="concurrent-requests"'
    assert headers["RateLimit"] == '"at-once";r=0;t=1'


def test_the_rate_is_told_while_slots_are_left(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("100/second; 2 at once")(answer()))
    assert client.get("/").headers["X-RateLimit-Limit"] == "100"


# Options.


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


# Bans.


def test_a_rule_s_ban_counts_the_refusals_of_its_slots(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    rule = Rule("1 at once", ban="2/hour for 1 day")
    app.add_url_rule("/", "view", limiter.limit(rule)(lambda: Response(words())))
    with client.get("/"):
        assert statuses(client, "/", 2) == [429, 429]
    refused = client.get("/")
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "86400")


def test_a_ban_of_the_limiter_counts_no_refusal_for_want_of_a_slot(
    app: Flask, buckets: CountingStore
) -> None:
    limiter = Limiter(app, redis=buckets, bans="1/hour for 1 day")
    app.add_url_rule("/", "view", limiter.limit("1 at once")(lambda: Response(words())))
    client = app.test_client()
    with client.get("/"):
        assert statuses(client, "/", 3) == [429] * 3
    assert client.get("/").data == b"one two"


def test_a_banned_client_holds_nothing(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets, bans="1/hour for 1 day", application_limits="5 at once")
    app.add_url_rule("/", "view", limiter.limit("1/hour; 3 at once")(answer()))
    assert statuses(app.test_client(), "/", 4) == [200, 429, 429, 429]
    assert in_use(buckets) == 0


# Other kinds of views.


def test_a_blueprint_s_requests_are_limited_at_once(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    blueprint = Blueprint("api", __name__)
    limiter.limit("1 at once")(blueprint)
    blueprint.get("/")(nested(app))
    app.register_blueprint(blueprint)
    assert at_once(client, 2) == [200, 429]
    assert in_use(buckets) == 0


def test_an_async_view_holds_a_slot_while_it_runs(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    @limiter.limit("2 at once")
    async def view() -> list[int]:
        with limiter.limit("1 at once", scope="block"):
            return [in_use(buckets)]

    assert client.get("/").json == [2]
    assert in_use(buckets) == 0


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


def test_of_requests_that_come_together_no_more_are_allowed_than_there_are_slots(
    app: Flask, limiter: Limiter, buckets: CountingStore
) -> None:
    came, answered = Barrier(10), Semaphore(0)

    @app.get("/")
    @limiter.limit("3 at once")
    def view() -> str:
        answered.acquire()
        return "fine"

    def ask() -> int:
        came.wait()
        status = app.test_client().get("/").status_code
        if status == 429:
            refused.append(status)
            if len(refused) == 7:
                answered.release(3)
        return status

    refused: list[int] = []
    with ThreadPoolExecutor(10) as pool:
        got = [pool.submit(ask) for _ in range(10)]
    assert sorted(future.result() for future in got) == [200] * 3 + [429] * 7
    assert in_use(buckets) == 0


# What it costs those who do not use it.


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
