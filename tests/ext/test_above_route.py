"""Limits above ``@app.get``, which the registered view does not run through, still hold."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from itertools import count
from typing import Any

import pytest
from flask import Blueprint, Flask
from flask.testing import FlaskClient

from flask_bucket import Limiter
from tests.ext.conftest import CountingStore, allowed, answer, statuses

View = Callable[..., Any]


def logged(view: View) -> View:
    """Like most decorators: copies the view's attributes, and calls it."""

    @wraps(view)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    return wrapper


class Served:
    @logged
    def method(self) -> str:
        return "method"


def test_a_limit_above_another_decorator_and_the_route_holds(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    limiter.limit("1/minute")(logged(logged(app.get("/")(answer()))))
    assert statuses(client, "/", 3) == [200, 429, 429]


def test_a_limit_above_another_limiters_and_the_route_holds(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    two = Limiter(app, name="two")
    limiter.limit("1/minute")(two.limit("5/minute")(app.get("/")(answer())))
    assert statuses(client, "/", 3) == [200, 429, 429]


def test_a_limit_above_a_decorator_and_the_route_adds_to_one_below(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    limiter.limit("1/minute")(logged(app.get("/")(limiter.limit("5/hour")(answer()))))
    assert statuses(client, "/", 2) == [200, 429]
    assert {key.rpartition(":")[2] for key in buckets.keys} == {"per-hour", "per-minute"}


def test_limits_on_both_sides_of_a_decorator_above_the_route_are_charged_once(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    view = app.get("/")(limiter.limit("7/hour")(answer()))
    limiter.limit("9/minute")(logged(limiter.limit("8/day")(view)))
    client.get("/")
    names = [key.rpartition(":")[2] for key in buckets.keys]
    assert sorted(names) == ["per-day", "per-hour", "per-minute"]


def test_a_limit_around_a_decorator_that_is_in_its_place_is_charged_once(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.get("/")(limiter.limit("9/minute")(logged(limiter.limit("8/day")(answer()))))
    client.get("/")
    names = [key.rpartition(":")[2] for key in buckets.keys]
    assert sorted(names) == ["per-day", "per-minute"]


def test_a_function_limited_with_other_decorators_for_one_endpoint_is_free_at_another(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    view = answer()
    app.add_url_rule("/limited", "limited", limiter.limit("1/minute")(logged(view)))
    app.add_url_rule("/free", "free", view)
    assert (allowed(client, "/free"), allowed(client, "/limited")) == (30, 1)


def test_a_view_with_its_own_limit_is_free_of_those_of_a_helper_that_wraps_its_function(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    function = answer()
    app.add_url_rule("/", "view", limiter.limit("3/minute")(function))
    helper = limiter.limit("1/minute")(logged(function))
    app.add_url_rule("/helped", "helped", lambda: helper())
    assert (allowed(client, "/"), allowed(client, "/helped")) == (3, 1)


def test_a_limit_above_a_decorator_of_one_objects_method_leaves_other_objects_free(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    one, other = Served(), Served()
    app.add_url_rule("/other", "other", other.method)
    app.add_url_rule("/one", "one", one.method)
    limiter.limit("2/minute")(logged(one.method))
    assert (allowed(client, "/one"), allowed(client, "/other")) == (2, 30)


def test_a_decorator_around_something_without_attributes_is_limited_in_its_place(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    class Slotted:
        __slots__ = ("__name__",)

        def __call__(self) -> str:
            return "called"

    app.add_url_rule("/", "view", limiter.limit("2/minute")(logged(Slotted())))
    assert allowed(client, "/") == 2


def test_a_limit_above_the_route_holds_when_it_is_written_within_a_request_context(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    with app.test_request_context():
        limiter.limit("1/minute")(app.get("/")(answer()))
    gc.collect()
    assert statuses(client, "/", 3) == [200, 429, 429]


def test_stacked_limits_above_the_route_hold_when_they_are_written_within_a_request_context(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    with app.test_request_context():
        limiter.limit("5/hour")(limiter.limit("2/minute")(app.get("/")(answer())))
    assert client.get("/").headers["X-RateLimit-Limit"] == "2"
    assert statuses(client, "/", 2) == [200, 429]


def test_a_limit_above_the_route_holds_in_an_application_that_a_request_makes(
    app: Flask, client: FlaskClient, buckets: CountingStore
) -> None:
    limiter, inner = Limiter(redis=buckets), Flask("inner")

    def make() -> str:
        bp = Blueprint("bp", __name__)
        limiter.limit("1/minute")(bp.get("/")(answer()))
        inner.register_blueprint(bp)
        limiter.init_app(inner)
        return "made"

    app.add_url_rule("/", view_func=make)
    client.get("/")
    gc.collect()
    assert statuses(inner.test_client(), "/", 3) == [200, 429, 429]


def test_a_function_that_each_request_decorates_does_not_keep_them_all(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    def helper() -> str:
        return "done"

    number = count(3)
    app.get("/")(lambda: limiter.limit(f"{next(number)}/minute")(logged(helper))())
    client.get("/")
    kept = len(gc.get_referents(*vars(helper).values()))
    for _ in range(9):
        client.get("/")
    assert len(gc.get_referents(*vars(helper).values())) == kept


def test_a_function_that_each_request_decorates_is_limited(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    def helper() -> str:
        return "done"

    app.get("/")(lambda: limiter.limit("3/minute")(helper)())
    assert statuses(client, "/", 4) == [200, 200, 200, 429]


@pytest.mark.parametrize("is_gone", [False, True], ids=["other application lives", "it is gone"])
def test_a_function_is_limited_where_no_endpoint_serves_the_limited_one(
    buckets: CountingStore, is_gone: bool
) -> None:
    """Another application that serves the limited one makes no difference."""
    limiter, view = Limiter(redis=buckets), answer()

    def create(served: View) -> Flask:
        app = Flask("made")
        limiter.init_app(app)
        app.add_url_rule("/", "view", served)
        return app

    other = [create(limiter.limit("2/minute")(view))]
    if is_gone:
        other.clear()
        gc.collect()
    assert allowed(create(view).test_client(), "/") == 2


def test_a_function_limited_in_two_applications_has_in_each_the_limit_of_its_own(
    buckets: CountingStore,
) -> None:
    limiter, view, apps = Limiter(redis=buckets), answer(), []
    for n in (1, 3):
        apps.append(Flask("made"))
        limiter.init_app(apps[-1])
        apps[-1].add_url_rule("/", f"view{n}", limiter.limit(f"{n}/minute")(view))
    assert [allowed(app.test_client(), "/") for app in apps] == [1, 3]


def test_a_factory_that_limits_one_function_above_the_route_adds_no_limit_each_time(
    buckets: CountingStore,
) -> None:
    limiter, view = Limiter(redis=buckets), answer()

    def create() -> Flask:
        app = Flask("made")
        limiter.init_app(app)
        limiter.limit("2/minute")(app.get("/", endpoint="view")(view))
        return app

    apps = [create() for _ in range(3)]
    assert allowed(apps[-1].test_client(), "/") == 2
    assert set(buckets.keys) == {"bucket:{127.0.0.1}:view:per-minute"}
