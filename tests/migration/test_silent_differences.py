"""Where the two differ without a word: docs/migration.md has a bullet for each of these."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import flask_limiter
import pytest
from flask import Blueprint, Flask
from flask.testing import FlaskClient
from flask_limiter.util import get_remote_address

import flask_bucket
from flask_bucket import ConfigError
from tests.migration.both import Both, view


def at_root(decorate: Callable[[Any], Any]) -> Callable[[Flask, Any], None]:
    """Declare one view at /; `decorate` returns its decorator, given a Limiter of either kind."""

    def declare(app: Flask, limiter: Any) -> None:
        app.add_url_rule("/", view_func=decorate(limiter)(view("index")))

    return declare


def limited(limiter: Any) -> Any:
    return limiter.limit("1/minute")


def test_a_limit_above_the_route_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []

    def declare(app: Flask, limiter: Any) -> None:
        index = view("index")
        app.add_url_rule("/", view_func=index)
        kept.append(limiter.limit("1/minute")(index))

    assert Both(declare, monkeypatch).allowed(3) == (3, 1)


def test_a_limit_on_an_exempt_view_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Both(at_root(lambda x: lambda v: x.exempt(limited(x)(v))), monkeypatch)
    assert both.allowed(3) == (3, 1)


def test_an_exempt_blueprint_includes_those_nested_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def declare(app: Flask, limiter: Any) -> None:
        outer, inner = Blueprint("outer", __name__), Blueprint("inner", __name__)
        limiter.exempt(outer)
        inner.add_url_rule("/", "index", view("index"))
        outer.register_blueprint(inner)
        app.register_blueprint(outer)

    assert Both(declare, monkeypatch, default_limits=["2/minute"]).allowed(4) == (2, 4)


def refusals(both: Both) -> tuple[Any, Any]:
    """Return what each answers to a second request."""
    both.theirs.get("/")
    both.ours.get("/")
    return both.theirs.get("/"), both.ours.get("/")


def test_the_description_of_an_error_is_not_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def declare(app: Flask, limiter: Any) -> None:
        @app.errorhandler(429)
        def handle(error: Any) -> Any:
            return [error.description, str(error)], 429

        at_root(limited)(app, limiter)

    theirs, ours = refusals(Both(declare, monkeypatch))
    assert theirs.json == ["1 per 1 minute", "429 Too Many Requests: 1 per 1 minute"]
    assert ours.json == ["Too Many Requests", "429 Too Many Requests: Too Many Requests"]


def test_a_handler_of_their_error_is_never_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def declare(app: Flask, limiter: Any) -> None:
        app.register_error_handler(flask_limiter.RateLimitExceeded, lambda error: ("", 418))
        at_root(limited)(app, limiter)

    theirs, ours = refusals(Both(declare, monkeypatch))
    assert (theirs.status_code, ours.status_code) == (418, 429)


def test_on_breach_receives_a_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    breaches: list[Any] = []
    refusals(Both(at_root(limited), monkeypatch, on_breach=breaches.append))
    theirs, ours = breaches
    assert isinstance(theirs, flask_limiter.RequestLimit)
    assert isinstance(ours, flask_bucket.Decision)
    assert (theirs.remaining, ours.remaining) == (0, 0)
    assert (str(theirs.limit), str(ours.limit)) == ("1 per 1 minute", "1/minute")


def test_an_amount_of_0_closes_no_view(
    app_of: Callable[[], tuple[Flask, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, limiter = app_of()
    theirs.add_url_rule("/", view_func=limiter.limit("0/minute")(view("index")))
    assert theirs.test_client().get("/").status_code == 429
    with pytest.raises(ConfigError, match="0/minute"):
        flask_bucket.Limiter().limit("0/minute")


@pytest.fixture
def app_of() -> Callable[[], tuple[Flask, Any]]:
    """Makes an application with a Flask-Limiter."""

    def make() -> tuple[Flask, Any]:
        app = Flask("theirs")
        limiter = flask_limiter.Limiter(get_remote_address, app=app, storage_uri="memory://")
        return app, limiter

    return make


def test_a_wrong_text_is_an_error_where_it_is_written(
    app_of: Callable[[], tuple[Flask, Any]],
) -> None:
    theirs, limiter = app_of()
    theirs.add_url_rule("/", view_func=limiter.limit("often")(view("index")))
    client = theirs.test_client()
    assert [client.get("/").status_code for _ in range(3)] == [200] * 3
    with pytest.raises(ConfigError, match="often"):
        flask_bucket.Limiter().limit("often")


def test_a_wrong_text_of_a_function_is_a_500(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flask.app.Flask.log_exception", lambda *_: None)
    both = Both(at_root(lambda limiter: limiter.limit(lambda: "often")), monkeypatch)
    assert [both.ask() for _ in range(2)] == [(200, 500)] * 2


def test_a_limiter_must_know_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flask.app.Flask.log_exception", lambda *_: None)
    limiters: list[Any] = [
        flask_limiter.Limiter(get_remote_address, storage_uri="memory://"),
        flask_bucket.Limiter(),
    ]
    clients: list[FlaskClient] = []
    for limiter in limiters:
        app = Flask("forgotten")
        at_root(limited)(app, limiter)
        clients.append(app.test_client())
    theirs, ours = ([client.get("/").status_code for _ in range(3)] for client in clients)
    assert (theirs, ours) == ([200] * 3, [500] * 3)


def test_views_of_a_decorator_without_wraps_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def logged(function: Callable[[], str]) -> Callable[[], str]:
        def wrapper() -> str:
            return function()

        return wrapper

    def declare(app: Flask, limiter: Any) -> None:
        for name, text in (("a", "1/minute"), ("b", "3/minute")):
            app.add_url_rule(f"/{name}", name, limiter.limit(text)(logged(view(name))))

    assert Both(declare, monkeypatch).allowed(4, "/b") == (1, 3)


def test_refusals_are_records_of_another_logger(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    refusals(Both(at_root(limited), monkeypatch))
    assert [(record.name, record.levelname) for record in caplog.records] == [
        ("flask-limiter", "INFO"),
        ("flask_bucket", "INFO"),
    ]


def test_limits_can_be_switched_off_and_reset_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    limiters: list[Any] = []

    def declare(app: Flask, limiter: Any) -> None:
        limiters.append(limiter)
        at_root(limited)(app, limiter)

    both = Both(declare, monkeypatch)
    assert both.allowed(2) == (1, 1)
    for limiter in limiters:
        limiter.enabled = False
    assert both.ask() == (200, 200)
    for limiter in limiters:
        limiter.enabled = True
    assert both.ask() == (429, 429)
    with both.ours.application.app_context():
        for limiter in limiters:
            limiter.reset()
    assert both.ask() == (200, 200)


@pytest.mark.parametrize(("first", "seen"), [("hook", "0"), ("Limiter", None)])
def test_a_hook_sees_the_headers_if_it_is_registered_first(first: str, seen: str | None) -> None:
    found = []

    def note(response: Any) -> Any:
        found.append(response.headers.get("X-RateLimit-Remaining"))
        return response

    for make in (
        lambda app: flask_limiter.Limiter(
            get_remote_address, app=app, storage_uri="memory://", headers_enabled=True
        ),
        flask_bucket.Limiter,
    ):
        app = Flask("hooked")
        if first == "hook":
            app.after_request(note)
        limiter: Any = make(app)
        if first == "Limiter":
            app.after_request(note)
        at_root(limited)(app, limiter)
        app.test_client().get("/")
    assert found == [seen, seen]
