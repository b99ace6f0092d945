"""Forgetting buckets: a client's, all of them, or those of the current request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Blueprint, Flask, request
from flask.testing import FlaskClient

from flask_bucket import ConfigError, Limiter, RedisStore, Rule
from flask_bucket.bucket import State
from tests.ext.conftest import CountingStore, answer, remaining, statuses
from tests.servers import Server


def test_reset_without_a_client_forgets_every_bucket(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("1/minute")(answer()))
    assert statuses(client, "/", 2) == [200, 429]
    with app.app_context():
        limiter.consume("1/minute", "alice")
        assert limiter.reset() == 2
        assert limiter.reset() == 0
    assert statuses(client, "/", 2) == [200, 429]


def test_reset_leaves_the_buckets_of_other_limiters(app: Flask, buckets: CountingStore) -> None:
    one, other = Limiter(app, redis=buckets), Limiter(app, redis=buckets, name="api")
    with app.app_context():
        for limiter in (one, other):
            limiter.consume("1/minute", "alice")
            limiter.consume("1/minute", "bob")
        assert one.reset() == 2
        assert other.reset("alice") == 1
        assert [bool(other.consume("1/minute", key)) for key in ("alice", "bob")] == [True, False]


def test_reset_of_none_is_a_mistake_and_forgets_nothing(app: Flask, limiter: Limiter) -> None:
    with app.app_context():
        limiter.consume("1/minute", "alice")
        with pytest.raises(ConfigError, match="None"):
            limiter.reset(None)  # type: ignore[arg-type]
        assert limiter.reset() == 1


def test_reset_reaches_through_all_stores(app: Flask, valkey: Server) -> None:
    app.config["BUCKET_TIMEOUT"] = 5
    limiter = Limiter(app, redis=valkey.url)
    app.get("/")(limiter.limit("1/minute")(answer()))
    client = app.test_client()
    assert statuses(client, "/", 3) == [200, 429, 429]
    with app.app_context():
        assert limiter.reset() == 1
    assert statuses(client, "/", 2) == [200, 429]


def test_reset_finds_the_keys_of_a_store_that_was_handed_in(app: Flask, valkey: Server) -> None:
    store = RedisStore.from_url(valkey.url, timeout=5, key_prefix="never used")
    limiter = Limiter(app, redis=store, name="api")
    with app.app_context():
        limiter.consume("1/minute", "alice")
        limiter.consume("1/minute", "bob")
        assert limiter.reset("alice") == 1
        assert limiter.reset() == 1
    store.close()


# The current request's: a login that succeeds forgives the failures before it.


@pytest.fixture
def login(app: Flask, limiter: Limiter) -> Callable[..., Any]:
    """Serve a login under a limit, and return what sends a password to it."""

    def serve(*limits: str | Rule, **options: Any) -> Callable[[str], Any]:
        @app.post("/login")
        @limiter.limit(limits, **options)
        def log_in() -> tuple[str, int]:
            if request.form["password"] != "right":
                return "wrong", 401
            limiter.reset_current()
            return "welcome", 200

        client = app.test_client()
        return lambda password: client.post("/login", data={"password": password})

    return serve


def test_a_login_that_succeeds_forgives_the_failures_before_it(login: Any) -> None:
    send = login("5/minute")
    assert [send("wrong").status_code for _ in range(4)] == [401] * 4
    assert send("right").status_code == 200
    assert [send("wrong").status_code for _ in range(6)] == [401] * 5 + [429]


def test_the_headers_of_a_request_that_was_forgiven_say_full(login: Any) -> None:
    send = login("5/minute", "20/hour")
    send("wrong")
    headers = send("right").headers
    assert (headers["X-RateLimit-Limit"], headers["X-RateLimit-Remaining"]) == ("5", "5")


def test_forgiving_is_one_call(login: Any, buckets: CountingStore) -> None:
    send = login("5/minute", "20/hour")
    send("right")
    assert buckets.calls == ["take", "settle"]


@pytest.mark.parametrize("deducts", [True, False])
def test_forgiving_is_one_call_whatever_deduct_when_says(
    login: Any, buckets: CountingStore, deducts: bool
) -> None:
    send = login("5/minute", deduct_when=lambda response: deducts)
    send("right")
    assert buckets.calls == ["take", "settle"]
    assert send("wrong").headers["X-RateLimit-Remaining"] == ("4" if deducts else "5")


def test_forgiving_fills_a_debt(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    @app.get("/")
    @limiter.limit("10/minute", cost=lambda: int(request.args["cost"]))
    def view() -> str:
        if "forgive" in request.args:
            limiter.reset_current()
        else:
            limiter.settle(5_000_000)
        return "fine"

    client.get("/?cost=1")
    assert client.get("/?cost=1").status_code == 429
    assert remaining(client, "/?cost=0&forgive=1") == 10
    assert remaining(client, "/?cost=1&forgive=1") == 10


def test_forgiving_does_nothing_where_the_request_was_not_charged(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("1/minute")(answer()))
    client.get("/")
    with app.test_request_context("/"):
        limiter.reset_current()
    assert client.get("/").status_code == 429


def test_a_cost_that_is_settled_after_forgiving_is_taken(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    @app.get("/")
    @limiter.limit("10/minute")
    def view() -> str:
        limiter.reset_current()
        limiter.settle(3)
        return "fine"

    assert remaining(client, "/") == 7


def test_only_the_view_s_own_limits_are_forgiven(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets, application_limits="100/hour", default_limits="90/hour")
    blueprint = Blueprint("accounts", __name__)

    @blueprint.get("/")
    @limiter.limit("70/hour", override_defaults=False)
    @limiter.limit("60/hour", scope="logins", override_defaults=False)
    def view() -> str:
        with limiter.limit("50/hour", scope="block"):
            limiter.reset_current()
        return "fine"

    limiter.limit("80/hour", override_defaults=False)(blueprint)
    app.register_blueprint(blueprint)
    app.test_client().get("/")
    app.test_client().get("/")
    states = buckets._states.items()
    kept = [(key.split("}:")[1].split(":")[0], s) for key, s in states if isinstance(s, State)]
    left = {scope: s.tokens // s.scale for scope, s in kept}
    assert left == {
        "@application": 98,
        "accounts.view@default": 88,
        "accounts.view@blueprint": 78,
        "accounts.view": 70,
        "logins": 58,
        "block": 48,
    }


def test_a_refusal_after_forgiving_gives_nothing_back_twice(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @limiter.limit("1/minute", scope="inner")
    def inner() -> str:
        return "fine"

    @app.get("/")
    @limiter.limit("10/minute")
    def view() -> str:
        limiter.reset_current()
        return inner()

    assert statuses(client, "/", 2) == [200, 429]
    with app.app_context():
        assert limiter.peek("10/minute", "127.0.0.1", 0, "view").remaining == 10


def test_forgiving_outside_of_a_request_is_an_error(app: Flask, limiter: Limiter) -> None:
    with app.app_context(), pytest.raises(RuntimeError, match="request context"):
        limiter.reset_current()


def test_forgiving_where_nothing_was_charged_calls_nobody(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    def view() -> str:
        limiter.reset_current()
        return "fine"

    assert client.get("/").status_code == 200
    assert buckets.calls == []
