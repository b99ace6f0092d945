"""A refusal is always raised: whoever stands between the limit and Flask sees an exception."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from flask import Blueprint, Flask, Response
from flask.testing import FlaskClient
from werkzeug.exceptions import HTTPException, TooManyRequests
from werkzeug.test import EnvironBuilder, run_wsgi_app

from flask_bucket import Limiter, RateLimitExceeded
from tests.ext.conftest import Clock, CountingStore, answer, refused


def test_a_decorator_around_a_limit_sees_the_refusal(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    def counted(view: Any) -> Any:
        def wrapper() -> Any:
            try:
                return view()
            except RateLimitExceeded as error:
                return f"wait {error.decision.retry_after}", 429

        return wrapper

    app.add_url_rule("/", "v", counted(limiter.limit("2/second")(answer())))
    assert refused(client).text == "wait 0.5"


def test_a_cache_around_a_limit_keeps_no_refusal(
    app: Flask, limiter: Limiter, client: FlaskClient, clock: Clock
) -> None:
    """A decorator written in C has no frame by which anybody could tell that it is there."""
    cached = functools.lru_cache(limiter.limit("1/minute")(answer()))
    app.add_url_rule("/", "v", cached)
    assert client.get("/").status_code == 200
    cached.cache_clear()
    assert client.get("/").status_code == 429
    clock.advance(60)
    assert client.get("/").status_code == 200


def test_preprocessing_a_request_by_hand_raises(app: Flask, buckets: CountingStore) -> None:
    Limiter(app, redis=buckets, application_limits="1/minute")
    with app.test_request_context("/"):
        assert app.preprocess_request() is None
    with app.test_request_context("/"), pytest.raises(RateLimitExceeded):
        app.preprocess_request()


def test_a_limited_view_that_is_called_by_hand_raises(app: Flask, limiter: Limiter) -> None:
    view = limiter.limit("1/minute")(answer())
    app.add_url_rule("/", "v", view)
    with app.test_request_context("/"):
        assert view() == "fine"
        with pytest.raises(RateLimitExceeded):
            view()


def test_a_limited_view_that_another_view_calls_raises(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    inner = limiter.limit("1/minute")(answer())
    app.add_url_rule("/inner", "inner", inner)

    @app.get("/")
    def outer() -> str:
        inner()
        with pytest.raises(RateLimitExceeded):
            inner()
        return "seen"

    assert client.get("/").text == "seen"


def limit_at(where: str, app: Flask, buckets: CountingStore) -> None:
    """Limit an application, or its only view."""
    limits = ["1/minute"] if where == "application" else []
    limiter = Limiter(app, redis=buckets, application_limits=limits)
    app.get("/")(limiter.limit("1/minute")(answer()) if where == "view" else answer())


class Handling(Flask):
    """An application that looks at exceptions itself."""

    def handle_user_exception(self, e: Exception) -> Any:
        return f"seen: {type(e).__name__}", 429


class Dispatching(Flask):
    """One that makes documents of all that its views return, and of what they raise."""

    def dispatch_request(self) -> Any:
        try:
            return {"text": super().dispatch_request()}
        except RateLimitExceeded as error:
            return f"seen: {type(error).__name__}", 429

    def preprocess_request(self) -> Any:
        try:
            return super().preprocess_request()
        except RateLimitExceeded as error:
            return f"seen: {type(error).__name__}", 429


class Making(Flask):
    """One that makes responses itself."""

    def make_response(self, rv: Any) -> Response:
        return super().make_response(
            (f"seen: {type(rv).__name__}", 429) if isinstance(rv, HTTPException) else rv
        )


@pytest.mark.parametrize("kind", [Handling, Dispatching, Making])
@pytest.mark.parametrize("where", ["view", "application"])
def test_an_application_that_handles_exceptions_itself_sees_refusals(
    buckets: CountingStore, kind: type[Flask], where: str
) -> None:
    app = kind("handling")
    limit_at(where, app, buckets)
    assert refused(app.test_client()).text == "seen: RateLimitExceeded"


def test_whoever_replaces_the_handling_of_one_application_sees_refusals(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.handle_http_exception = lambda e: (f"seen: {e.code}", 429)  # type: ignore[method-assign]
    app.get("/")(limiter.limit("1/minute")(answer()))
    assert refused(client).text == "seen: 429"


def test_whoever_replaces_the_handling_of_all_applications_sees_refusals(
    app: Flask, limiter: Limiter, client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Flask, "handle_http_exception", lambda app, e: (f"seen: {e.code}", 429))
    app.get("/")(limiter.limit("1/minute")(answer()))
    assert refused(client).text == "seen: 429"


@pytest.mark.parametrize("where", ["view", "application"])
def test_trapped_http_exceptions_trap_refusals(buckets: CountingStore, where: str) -> None:
    app = Flask("trapping")
    app.config.update(TRAP_HTTP_EXCEPTIONS=True, PROPAGATE_EXCEPTIONS=True)
    limit_at(where, app, buckets)
    with pytest.raises(RateLimitExceeded):
        refused(app.test_client())


@pytest.mark.parametrize("handled", [429, TooManyRequests, HTTPException, Exception])
@pytest.mark.parametrize("where", ["app", "blueprint"])
def test_a_handler_for_any_class_of_a_refusal_is_asked(
    app: Flask, limiter: Limiter, client: FlaskClient, handled: Any, where: str
) -> None:
    blueprint = Blueprint("api", "api")
    blueprint.get("/")(limiter.limit("1/minute")(answer()))
    owner = app if where == "app" else blueprint
    owner.register_error_handler(handled, lambda e: ("handled", 429))
    app.register_blueprint(blueprint)
    assert refused(client).text == "handled"


def test_a_handler_of_something_else_changes_nothing(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.register_error_handler(404, lambda e: ("handled", 404))
    app.register_error_handler(ValueError, lambda e: ("handled", 400))
    app.get("/")(limiter.limit("2/second")(answer()))
    assert refused(client).json == {"error": "Too Many Requests", "retryAfterMs": 500}


class Narrow(Response):
    """A class of responses as its users often write it."""

    default_mimetype = "text/plain"

    def __init__(self, response: Any = None, **kwargs: Any) -> None:
        super().__init__(response, **kwargs)


@pytest.mark.parametrize("where", ["view", "application"])
def test_a_refusal_is_of_the_application_s_response_class(
    buckets: CountingStore, where: str
) -> None:
    app = Flask("narrow")
    app.response_class = Narrow
    seen: list[Response] = []

    @app.after_request
    def look(response: Response) -> Response:
        seen.append(response)
        return response

    limit_at(where, app, buckets)
    environ = EnvironBuilder("/").get_environ()
    # Without the test client, which makes responses of its own in the same class.
    statuses = [run_wsgi_app(app, dict(environ))[1] for _ in range(2)]
    assert statuses == ["200 OK", "429 TOO MANY REQUESTS"]
    assert all(isinstance(response, Narrow) for response in seen)
    assert seen[1].content_type == "application/json"


def test_hooks_after_the_request_see_how_long_a_refused_client_must_wait(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    @app.after_request
    def look(response: Response) -> Response:
        if response.status_code == 429:
            response.headers["X-Seen"] = response.headers["Retry-After"]
            response.headers.setdefault("Retry-After", "1")
        return response

    app.get("/")(limiter.limit("1/minute")(answer()))
    headers = refused(client).headers
    assert (headers["X-Seen"], headers["Retry-After"]) == ("60", "60")


def test_a_response_that_on_breach_returns_again_and_again_is_not_changed(
    app: Flask, buckets: CountingStore, clock: Clock
) -> None:
    busy = Response("busy", 429)
    limiter = Limiter(app, redis=buckets, on_breach=lambda decision: busy)
    app.get("/")(limiter.limit("1/minute")(answer()))
    client = app.test_client()
    assert refused(client).headers["Retry-After"] == "60"
    clock.advance(30)
    response = refused(client)
    assert (response.text, response.headers["Retry-After"]) == ("busy", "30")
    assert "Retry-After" not in busy.headers


def test_a_hook_that_calls_the_view_itself_sees_the_refusal(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.add_url_rule("/", "v", limiter.limit("1/minute")(answer()))

    @app.before_request
    def ask_twice() -> str:
        texts = [str(app.view_functions["v"]())]
        with pytest.raises(RateLimitExceeded):
            app.view_functions["v"]()
        return texts[0].upper()

    assert client.get("/").text == "FINE"
