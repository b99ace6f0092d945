"""Where a decorator stands, and what a refused request is charged: nothing, from any limit."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from flask import Flask, abort, g, request
from flask.testing import FlaskClient

from flask_bucket import Limiter
from tests.ext.conftest import Clock, CountingStore, answer, remaining, statuses

View = Callable[..., Any]


def login_required(view: View) -> View:
    """Like most such decorators: copies the view's attributes, and turns strangers away."""

    @wraps(view)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if "Authorization" not in request.headers:
            abort(401)
        return view(*args, **kwargs)

    return wrapper


USER = {"Authorization": "Basic dTpw"}


def test_a_request_that_an_outer_decorator_rejects_charges_no_route_limit(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.add_url_rule("/", "v", login_required(limiter.limit("1/minute")(answer())))
    assert statuses(client, "/", 3) == [401, 401, 401]
    assert buckets.calls == []
    assert statuses(client, "/", 2, headers=USER) == [200, 429]


def test_a_limit_above_charges_before_the_inner_decorator(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.add_url_rule("/", "v", limiter.limit("1/minute")(login_required(answer())))
    assert statuses(client, "/", 2) == [401, 429]


def test_limits_on_both_sides_of_a_login_charge_where_they_stand(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    view = limiter.limit("3/minute")(login_required(limiter.limit("1/minute")(answer())))
    app.add_url_rule("/", "v", view)
    assert statuses(client, "/", 2) == [401, 401]
    assert statuses(client, "/", 1, headers=USER) == [200]
    assert statuses(client, "/", 1) == [429]
    inner, outer = (f"bucket:{{127.0.0.1}}:v:{name}" for name in ("per-minute", "per-minute-2"))
    assert buckets.keys == [outer, outer, outer, inner, outer], "counted from the inside"


def test_an_inner_refusal_gives_back_what_an_outer_limit_took(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    view = limiter.limit("9/minute")(login_required(limiter.limit("1/hour")(answer())))
    app.add_url_rule("/", "v", view)
    assert statuses(client, "/", 4, headers=USER) == [200, 429, 429, 429]
    assert "settle" not in buckets.calls, "in the call that refuses"
    assert remaining(client, "/") == 7, "the one that was answered, and this"


def test_a_refused_request_takes_nothing_from_the_application_limit(
    app: Flask, buckets: CountingStore
) -> None:
    limiter = Limiter(app, redis=buckets, application_limits=["4/minute"])
    client = app.test_client()
    app.add_url_rule("/", "v", limiter.limit("1/hour")(answer()))
    app.add_url_rule("/other", "other", answer())
    assert statuses(client, "/", 5) == [200, 429, 429, 429, 429]
    assert "settle" not in buckets.calls, "given back in the call that refuses"
    assert remaining(client, "/other") == 2


def test_a_refused_request_takes_nothing_from_any_of_several_limits(
    app: Flask, limiter: Limiter, client: FlaskClient, clock: Clock
) -> None:
    app.add_url_rule("/", "v", limiter.limit("1/second; 5/minute; 9/hour")(answer()))
    assert statuses(client, "/", 6) == [200] + [429] * 5
    clock.advance(1)
    client.get("/")
    assert statuses(client, "/", 1) == [429]
    for _ in range(3):
        clock.advance(1)
        assert statuses(client, "/", 1) == [200]


def test_an_application_refusal_reaches_no_view(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets, application_limits=["1/minute"])
    reached: list[str] = []

    def view() -> str:
        reached.append("view")
        return "fine"

    app.add_url_rule("/", "v", limiter.limit("9/minute")(view))
    assert statuses(app.test_client(), "/", 2) == [200, 429]
    assert reached == ["view"]
    assert buckets.calls == ["take", "take", "take"]


def test_a_key_function_may_need_what_an_outer_decorator_found(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    def identified(view: View) -> View:
        @wraps(view)
        def wrapper() -> Any:
            g.user = request.args["user"]
            return view()

        return wrapper

    view = limiter.limit("1/minute", key_func=lambda: str(g.user))(answer())
    app.add_url_rule("/", "v", identified(view))
    assert statuses(client, "/?user=a", 2) == [200, 429]
    assert statuses(client, "/?user=b", 2) == [200, 429]
