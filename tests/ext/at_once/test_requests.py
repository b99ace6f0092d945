"""How long a request holds its slot."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask, Response, abort, request
from flask.testing import FlaskClient

from flask_bucket import Limiter
from tests.ext.conftest import Clock, CountingStore, in_use, nested, statuses


def fail(*_: Any) -> Any:
    raise ZeroDivisionError


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
    """An exception like a server's own, which no error handler sees."""


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
