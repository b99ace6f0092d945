"""Where the two differ on purpose: what README and docs/migration.md say, one test each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import flask_limiter
import pytest
import redis
from flask import Blueprint, Flask, request
from flask_limiter.util import get_remote_address

import flask_bucket
from flask_bucket.stores.redis.wire import Wire
from tests.migration.both import Both, view
from tests.servers import Server


def one_limit(text: str, **options: Any) -> Callable[[Flask, Any], None]:
    """Declare one view at /, with one limit."""

    def declare(app: Flask, limiter: Any) -> None:
        app.add_url_rule("/", view_func=limiter.limit(text, **options)(view("index")))

    return declare


def test_a_windows_end_lets_nearly_twice_the_limit_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its window begins with the first request, so the client that sends it knows where it ends."""
    both = Both(one_limit("10/minute"), monkeypatch)
    both.ask()
    both.wait(59.9)
    before = both.allowed(10)
    both.wait(0.2)
    after = both.allowed(10)
    assert (before[0] + after[0], before[1] + after[1]) == (19, 10)


def test_functions_of_the_same_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def declare(app: Flask, limiter: Any) -> None:
        for path, text in (("/a", "1/minute"), ("/b", "3/minute")):
            function = limiter.limit(text)(view("made_by_a_factory"))
            app.add_url_rule(path, path.strip("/"), function)

    both = Both(declare, monkeypatch)
    assert both.allowed(4, "/b") == (1, 3)


def test_a_bucket_refills_within_the_period(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Both(one_limit("10/minute"), monkeypatch)
    both.allowed(10)
    both.wait(6)
    assert both.ask() == (429, 200)


def test_a_bucket_allows_its_burst_and_the_refill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the first period a bucket allows more than a window: the burst, and what comes back."""
    both = Both(one_limit("10/minute"), monkeypatch)

    def allowed_in_a_minute() -> tuple[int, int]:
        theirs = ours = 0
        for _ in range(60):
            verdicts = both.ask()
            theirs, ours = theirs + (verdicts[0] == 200), ours + (verdicts[1] == 200)
            both.wait(1)
        return theirs, ours

    assert allowed_in_a_minute() == (10, 19)
    assert allowed_in_a_minute() == (10, 10)


def test_refused_requests_take_nothing_from_other_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    def declare(app: Flask, limiter: Any) -> None:
        app.add_url_rule("/a", view_func=limiter.limit("2/minute")(view("a")))
        app.add_url_rule("/b", view_func=view("b"))

    both = Both(declare, monkeypatch, application_limits=["10/minute"])
    assert both.allowed(10, "/a") == (2, 2)
    assert both.ask("/b") == (429, 200)


def test_guesses_at_the_same_moment_are_counted_before_they_are_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner: list[tuple[int, ...]] = []

    def declare(app: Flask, limiter: Any) -> None:
        def login() -> tuple[str, int]:
            if "outer" in request.args:
                inner.append((app.test_client().get("/login").status_code,))
            return "", 401

        counts = limiter.limit("1/minute", deduct_when=lambda response: True)
        app.add_url_rule("/login", view_func=counts(login))

    both = Both(declare, monkeypatch)
    assert both.ask("/login?outer=1", client="127.0.0.1") == (401, 401)
    assert inner == [(401,), (429,)]


def test_a_cost_above_the_limit_is_refused_for_ever_by_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = Both(one_limit("5/minute", cost=6), monkeypatch)
    assert both.ask() == (429, 429)
    assert "Retry-After" not in both.ours.get("/").headers


def test_urls_that_lead_nowhere_count_for_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Both(lambda app, limiter: None, monkeypatch, application_limits=["2/minute"])
    both.allowed(2, "/nowhere")
    assert both.ask("/nowhere") == (404, 429)


def test_options_are_free_of_default_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    def declare(app: Flask, limiter: Any) -> None:
        app.add_url_rule("/", view_func=view("index"))

    both = Both(declare, monkeypatch, default_limits=["2/minute"])
    assert both.allowed(4, method="OPTIONS") == (2, 4)


def test_head_counts_as_get(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Both(one_limit("2/minute", methods=["GET"]), monkeypatch)
    assert both.allowed(4, method="HEAD") == (4, 2)


def test_an_exempt_view_is_free_of_its_blueprints_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    def declare(app: Flask, limiter: Any) -> None:
        blueprint = Blueprint("blue", __name__)
        blueprint.add_url_rule("/", "index", limiter.exempt(view("index")))
        limiter.limit("2/minute")(blueprint)
        app.register_blueprint(blueprint)

    both = Both(declare, monkeypatch)
    assert both.allowed(4) == (2, 4)


def test_a_scope_is_shared_by_whoever_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def declare(app: Flask, limiter: Any) -> None:
        for name in ("a", "b"):
            scoped = limiter.limit("2/minute", scope="same")(view(name))
            app.add_url_rule(f"/{name}", view_func=scoped)

    both = Both(declare, monkeypatch)
    assert both.allowed(2, "/a") == (2, 2)
    assert both.ask("/b") == (200, 429)


def test_an_empty_key_is_a_client_and_none_is_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    def key() -> str | None:
        return request.args.get("key")

    both = Both(one_limit("2/minute", key_func=key), monkeypatch)
    assert both.allowed(4, "/?key=") == (4, 2)
    assert both.allowed(4, "/") == (4, 4)


def test_the_handler_of_a_rule_takes_the_place_of_the_one_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: list[str] = []
    declare = one_limit("1/minute", on_breach=lambda _: called.append("rule"))
    both = Both(declare, monkeypatch, on_breach=lambda _: called.append("all"))
    both.ask()
    both.ask()
    assert called == ["all", "rule", "rule"]  # Flask-Limiter calls both


def test_headers_are_on_by_default_and_retry_after_is_for_refusals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = Both(one_limit("1/minute"), monkeypatch)
    assert "X-RateLimit-Limit" not in both.theirs.get("/").headers
    first, second = both.ours.get("/").headers, both.ours.get("/").headers
    assert first["X-RateLimit-Limit"] == "1"
    assert ("Retry-After" in first, second["Retry-After"]) == (False, "60")


def test_a_refusal_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Both(one_limit("1/minute"), monkeypatch)
    both.ask(client="127.0.0.1")
    theirs, ours = both.theirs.get("/"), both.ours.get("/")
    assert (theirs.mimetype, ours.mimetype) == ("text/html", "application/json")


def test_without_redis_requests_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = "redis://127.0.0.1:1"
    monkeypatch.setattr("flask.app.Flask.log_exception", lambda *_: None)
    theirs, ours = Flask("theirs"), Flask("ours")
    one_limit("1/minute")(
        theirs, flask_limiter.Limiter(get_remote_address, app=theirs, storage_uri=nowhere)
    )
    one_limit("1/minute")(ours, flask_bucket.Limiter(ours, redis=nowhere))
    assert theirs.test_client().get("/").status_code == 500
    assert ours.test_client().get("/").status_code == 200


@contextmanager
def counted_round_trips(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Count how often anything is sent to a server, by whichever library."""
    count = [0]

    def counting(send: Any) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            count[0] += 1
            return send(*arguments, **options)

        return counted

    with monkeypatch.context() as patched:
        for kind, name in (
            (redis.connection.AbstractConnection, "send_packed_command"),
            (Wire, "call"),
        ):
            patched.setattr(kind, name, counting(getattr(kind, name)))
        yield count


def round_trips(app: Flask, monkeypatch: pytest.MonkeyPatch) -> float:
    client = app.test_client()
    for _ in range(3):  # connects, and loads scripts
        assert client.get("/").status_code == 200
    with counted_round_trips(monkeypatch) as count:
        for _ in range(10):
            response = client.get("/")
            assert response.status_code == 200
            assert "X-RateLimit-Remaining" in response.headers
    return count[0] / 10


ONE, THREE = "1000/hour", "1000/minute; 2000/hour; 3000/day"


@pytest.mark.parametrize(
    ("strategy", "limits", "expected"),
    [
        ("fixed-window", ONE, 3),
        ("moving-window", ONE, 2),
        ("sliding-window-counter", ONE, 2),
        ("fixed-window", THREE, 5),
        ("moving-window", THREE, 4),
        ("sliding-window-counter", THREE, 4),
    ],
)
def test_flask_limiter_asks_for_each_limit_and_for_the_headers(
    valkey: Server,
    monkeypatch: pytest.MonkeyPatch,
    strategy: str,
    limits: str,
    expected: int,
) -> None:
    app = Flask("theirs")
    limiter = flask_limiter.Limiter(
        get_remote_address,
        app=app,
        storage_uri=valkey.url,
        strategy=strategy,
        headers_enabled=True,
    )
    one_limit(limits)(app, limiter)
    assert round_trips(app, monkeypatch) == expected


@pytest.mark.parametrize("limits", [ONE, THREE])
def test_we_ask_once(valkey: Server, monkeypatch: pytest.MonkeyPatch, limits: str) -> None:
    app = Flask("ours")
    app.config.update(BUCKET_REDIS_URL=valkey.url, BUCKET_TIMEOUT=5)
    one_limit(limits)(app, flask_bucket.Limiter(app))
    assert round_trips(app, monkeypatch) == 1
