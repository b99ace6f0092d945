"""A @limit holds, whatever it decorates and wherever it stands."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from flask_bucket import ConfigError, Limiter
from tests.ext.conftest import allowed, answer, statuses


class Served:
    def __call__(self) -> str:
        return "called"

    def method(self) -> str:
        return "method"


def greet(name: str) -> str:
    return f"hello {name}"


VIEWS: dict[str, Callable[[], Callable[..., Any]]] = {
    "function": answer,
    "object": Served,
    "partial": lambda: partial(greet, "world"),
    "bound method": lambda: Served().method,
}


@pytest.fixture(params=VIEWS)
def view(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """A view of every kind in turn."""
    return VIEWS[request.param]()


def test_a_limit_below_the_route_holds(
    app: Flask, limiter: Limiter, client: FlaskClient, view: Any
) -> None:
    app.add_url_rule("/", "view", limiter.limit("2/minute")(view))
    assert allowed(client, "/") == 2


def test_a_limit_above_the_route_holds(
    app: Flask, limiter: Limiter, client: FlaskClient, view: Any
) -> None:
    app.add_url_rule("/", "view", view)
    limiter.limit("2/minute")(view)
    assert allowed(client, "/") == 2


def test_a_limit_after_the_first_request_holds(
    app: Flask, limiter: Limiter, client: FlaskClient, view: Any
) -> None:
    app.add_url_rule("/", "view", view)
    client.get("/")
    limiter.limit("2/minute")(view)
    assert allowed(client, "/") == 2


def test_a_view_that_is_limited_again_after_the_first_request_has_both(
    app: Flask, limiter: Limiter, client: FlaskClient, view: Any
) -> None:
    app.add_url_rule("/", "view", limiter.limit("5/minute")(view))
    assert client.get("/").headers["X-RateLimit-Limit"] == "5"
    limiter.limit("2/minute")(app.view_functions["view"])
    assert client.get("/").headers["X-RateLimit-Limit"] == "2"
    assert statuses(client, "/", 2) == [200, 429]


def test_a_view_that_is_replaced_after_the_first_request_is_limited(
    app: Flask, limiter: Limiter, client: FlaskClient, view: Any
) -> None:
    app.add_url_rule("/", "view", view)
    client.get("/")
    app.view_functions["view"] = limiter.limit("2/minute")(app.view_functions["view"])
    assert allowed(client, "/") == 2


def test_a_partial_of_a_limited_function_is_limited(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.add_url_rule("/", "view", partial(limiter.limit("2/minute")(greet), "world"))
    assert allowed(client, "/") == 2


def test_two_methods_of_one_object_are_limited_apart(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    one, other = Served(), Served()
    app.add_url_rule("/one", "one", one.method)
    app.add_url_rule("/other", "other", other.method)
    limiter.limit("2/minute")(one.method)
    assert allowed(client, "/one") == 2
    assert allowed(client, "/other") == 30


def test_a_view_that_keeps_nothing_is_refused_where_it_is_limited(limiter: Limiter) -> None:
    class Slotted:
        __slots__ = ()

        def __call__(self) -> str:
            return "called"

    with pytest.raises(ConfigError, match="takes no attributes"):
        limiter.limit("2/minute")(Slotted())
