"""The functions and classes that ``@limiter.limit`` decorates."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from flask_bucket import ConfigError, Limiter
from tests.ext.conftest import Clock, CountingStore, allowed, answer, statuses


def test_a_limited_view_is_refused_when_its_tokens_are_gone(
    app: Flask, limiter: Limiter, client: FlaskClient, clock: Clock
) -> None:
    app.get("/")(limiter.limit("2/minute")(answer()))
    assert statuses(client, "/", 3) == [200, 200, 429]
    clock.advance(30)
    assert statuses(client, "/", 2) == [200, 429]


def test_a_decorated_view_keeps_its_name_arguments_and_answer(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    @app.get("/<int:n>")
    @limiter.limit("2/minute")
    def doubled(n: int) -> str:
        """Says it twice."""
        return str(2 * n)

    assert (doubled.__name__, doubled.__doc__) == ("doubled", "Says it twice.")
    assert client.get("/21").text == "42"


@pytest.mark.parametrize("target", [None, "view", 7, object(), [answer()]])
def test_a_limit_on_what_is_no_function_is_an_error(limiter: Limiter, target: Any) -> None:
    with pytest.raises(ConfigError, match="function or a Blueprint"):
        limiter.limit("1/minute")(target)


def test_a_limit_on_a_class_says_what_to_do(limiter: Limiter) -> None:
    with pytest.raises(ConfigError, match="decorate its methods"):

        @limiter.limit("1/minute")
        class View:
            pass


def test_a_limit_on_the_application_says_what_to_do(app: Flask, limiter: Limiter) -> None:
    with pytest.raises(ConfigError, match="application_limits"):
        limiter.limit("1/minute")(app)
    with pytest.raises(ConfigError, match="BUCKET_ENABLED"):
        limiter.exempt(app)


def test_a_plain_function_is_limited_within_a_request(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    @limiter.limit("2/minute")
    def costly() -> str:
        return "done"

    app.get("/once")(lambda: costly())
    app.add_url_rule("/twice", "twice", lambda: costly() + costly())
    assert statuses(client, "/once", 3) == [200, 200, 429]
    assert statuses(client, "/twice", 2) == [200, 429], "another endpoint, another bucket"


def test_a_plain_function_is_free_outside_a_request(app: Flask, limiter: Limiter) -> None:
    costly = limiter.limit("1/minute")(answer())
    assert [costly(), costly()] == ["fine", "fine"]
    with app.app_context():
        assert [costly(), costly()] == ["fine", "fine"]


def test_a_partial_and_a_callable_object_may_be_limited(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    class View:
        def __call__(self) -> str:
            return "object"

        def method(self) -> str:
            return "method"

    app.add_url_rule("/a", "a", limiter.limit("1/minute")(partial(answer, "x")()))
    app.add_url_rule("/b", "b", limiter.limit("1/minute")(partial(str, "partial")))
    app.add_url_rule("/c", "c", limiter.limit("1/minute")(View()))
    app.add_url_rule("/d", "d", limiter.limit("1/minute")(View().method))
    for path in ("/a", "/b", "/c", "/d"):
        assert statuses(client, path, 2) == [200, 429]


def test_one_decorator_may_serve_several_views(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    twice = limiter.limit("2/minute")
    app.add_url_rule("/a", "a", twice(answer()))
    app.add_url_rule("/b", "b", twice(answer()))
    assert (allowed(client, "/a"), allowed(client, "/b")) == (2, 2)


def test_a_copied_attribute_does_not_make_a_wrapper_limited(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    def logged(view: Callable[[], str]) -> Callable[[], str]:
        @wraps(view)
        def wrapper() -> str:
            return view()

        return wrapper

    app.get("/")(limiter.limit("9/minute")(logged(limiter.limit("3/minute")(answer()))))
    assert allowed(client, "/") == 3
    assert buckets.calls.count("take") == 8, "two decorators, two calls"
