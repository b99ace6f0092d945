"""One Limiter on several applications, and several Limiters on one."""

from __future__ import annotations

import pytest
from flask import Flask
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.test import Client

from flask_bucket import Limiter, MemoryStore, limit_exceeded
from tests.ext.conftest import Clock, CountingStore, allowed, answer, statuses


def test_an_application_factory_makes_applications_that_share_nothing() -> None:
    limiter = Limiter()
    view = limiter.limit("2/minute")(answer())

    def create_app(**settings: object) -> Flask:
        app = Flask("made")
        app.config.update(settings)
        limiter.init_app(app)
        app.add_url_rule("/", "v", view)
        app.add_url_rule("/d", "d", answer())
        return app

    one = create_app(BUCKET_DEFAULT_LIMITS="3/minute").test_client()
    two = create_app(BUCKET_DEFAULT_LIMITS="4/minute", BUCKET_HEADERS="ietf").test_client()
    off = create_app(BUCKET_DEFAULT_LIMITS="1/minute", BUCKET_ENABLED=False).test_client()
    assert [allowed(client, "/") for client in (one, two, off)] == [2, 2, 30]
    assert [allowed(client, "/d") for client in (one, two, off)] == [3, 4, 30]
    assert "X-RateLimit-Limit" in one.get("/").headers
    assert "RateLimit" in two.get("/").headers


def test_a_limiter_may_be_initialised_after_its_decorators(buckets: CountingStore) -> None:
    app, limiter = Flask("late"), Limiter(redis=buckets)
    app.get("/")(limiter.limit("1/minute")(answer()))
    limiter.init_app(app)
    assert statuses(app.test_client(), "/", 2) == [200, 429]


def test_applications_on_one_store_share_their_buckets(buckets: CountingStore) -> None:
    limiter = Limiter(redis=buckets)
    view, clients = limiter.limit("3/minute")(answer()), []
    for _ in range(2):
        app = Flask("worker")
        limiter.init_app(app)
        app.add_url_rule("/", "v", view)
        clients.append(app.test_client())
    assert statuses(clients[0], "/", 2) + statuses(clients[1], "/", 2) == [200, 200, 200, 429]


def test_mounted_applications_keep_their_own_state(clock: Clock) -> None:
    limiter, apps = Limiter(redis=MemoryStore(clock)), []
    for name, default in (("outer", "2/minute"), ("inner", "1/minute")):
        app = Flask(name)
        app.config.update(BUCKET_DEFAULT_LIMITS=default, BUCKET_KEY_PREFIX=name)
        limiter.init_app(app)
        app.add_url_rule("/", "v", answer())
        apps.append(app)
    client = Client(DispatcherMiddleware(apps[0], {"/inner": apps[1]}))
    paths = ["/", "/inner/", "/", "/inner/", "/"]
    assert [client.get(path).status_code for path in paths] == [200, 200, 200, 429, 429]


def test_the_same_name_twice_is_an_error(app: Flask, limiter: Limiter) -> None:
    for again in (limiter, Limiter()):
        with pytest.raises(RuntimeError, match="has a Limiter named 'bucket' already"):
            again.init_app(app)
    assert len(app.before_request_funcs[None]) == 1


def test_init_app_after_the_first_request_is_a_clear_error(app: Flask) -> None:
    limiter = Limiter()
    app.get("/")(answer())
    client = app.test_client()
    assert client.get("/").status_code == 200
    with pytest.raises(RuntimeError, match=r"handled a request already.*init_app"):
        limiter.init_app(app)
    assert app.extensions.get("flask_bucket", {}) == {}
    assert client.get("/").status_code == 200, "and the application works as before"
    with app.app_context(), pytest.raises(RuntimeError, match="does not know"):
        limiter.consume("1/minute", "a")


def test_a_limited_view_of_an_application_without_the_limiter_is_a_clear_error() -> None:
    app, limiter = Flask("forgotten"), Limiter()
    app.testing = True
    app.get("/")(limiter.limit("1/minute")(answer()))
    with pytest.raises(RuntimeError, match=r"does not know the application.*init_app"):
        app.test_client().get("/")


def test_a_failed_init_app_can_be_tried_again(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(redis=buckets)
    app.config["BUCKET_HEADERS"] = "odd"
    with pytest.raises(ValueError, match="BUCKET_HEADERS"):
        limiter.init_app(app)
    app.config["BUCKET_HEADERS"] = "ietf"
    limiter.init_app(app)
    app.get("/")(limiter.limit("1/minute")(answer()))
    assert statuses(app.test_client(), "/", 2) == [200, 429]


# Several on one application.


def test_limiters_of_different_names_both_hold(app: Flask, buckets: CountingStore) -> None:
    ip = Limiter(app, redis=buckets)
    user = Limiter(app, redis=buckets, key_func=lambda: "user", name="user")
    app.add_url_rule("/", "v", ip.limit("3/minute")(user.limit("2/minute")(answer())))
    assert allowed(app.test_client(), "/") == 2
    assert set(app.extensions["flask_bucket"]) == {"bucket", "user"}


@pytest.mark.parametrize("tight_first", [True, False])
def test_the_headers_tell_of_the_tighter_limit(app: Flask, clock: Clock, tight_first: bool) -> None:
    limits = ["2/minute", "9/minute"] if tight_first else ["9/minute", "2/minute"]
    for name, limit in zip(("a", "b"), limits, strict=True):
        Limiter(app, redis=MemoryStore(clock), name=name, default_limits=[limit])
    app.add_url_rule("/", "v", answer())
    client = app.test_client()
    for remaining in ("1", "0", "0"):
        headers = client.get("/").headers
        assert headers.getlist("X-RateLimit-Limit") == ["2"]
        assert headers.getlist("X-RateLimit-Remaining") == [remaining]
    assert headers.getlist("Retry-After") == ["30"]


def test_the_one_that_refused_is_told_even_if_another_has_less_left(
    app: Flask, clock: Clock
) -> None:
    Limiter(app, redis=MemoryStore(clock), name="a", default_limits=["1/second"])
    second = Limiter(app, redis=MemoryStore(clock), name="b")
    app.add_url_rule("/", "v", second.limit("9/minute", cost=10)(answer()))
    refused = app.test_client().get("/")
    assert refused.status_code == 429
    assert refused.headers["X-RateLimit-Limit"] == "9"


@pytest.mark.parametrize("inner_refuses", [True, False])
def test_a_refusal_by_one_takes_nothing_from_the_other(
    app: Flask, clock: Clock, inner_refuses: bool
) -> None:
    store = MemoryStore(clock)
    outer, inner = Limiter(app, redis=store, name="a"), Limiter(app, redis=store, name="b")
    generous, strict = (outer, inner) if inner_refuses else (inner, outer)
    view = strict.limit("1/hour")(generous.limit("9/minute")(answer()))
    if inner_refuses:
        view = generous.limit("9/minute")(strict.limit("1/hour")(answer()))
    app.add_url_rule("/", "v", view)
    assert statuses(app.test_client(), "/", 4) == [200, 429, 429, 429]
    with app.app_context():
        seen = generous.peek("9/minute", "127.0.0.1", 0, scope="v").outcomes[0]
    assert seen.remaining == 8


def test_each_has_filters_exemptions_and_a_switch_of_its_own(
    app: Flask, buckets: CountingStore
) -> None:
    one = Limiter(app, redis=buckets, default_limits=["1/minute"], name="one")
    two = Limiter(app, redis=buckets, default_limits=["3/minute"], name="two")
    app.add_url_rule("/both", "both", answer())
    app.add_url_rule("/exempt", "exempt", one.exempt(answer()))
    client = app.test_client()
    assert (allowed(client, "/both"), allowed(client, "/exempt")) == (1, 3)
    one.enabled = False
    assert two.enabled
    assert allowed(client, "/both") == 2, "the refused one was taken back"


def test_signals_name_the_limiter(app: Flask, buckets: CountingStore) -> None:
    Limiter(app, redis=buckets, default_limits=["9/minute"], name="one")
    two = Limiter(app, redis=buckets, default_limits=["1/minute"], name="two")
    app.add_url_rule("/", "v", answer())
    told: list[object] = []

    def note(sender: Flask, limiter: Limiter, decision: object) -> None:
        told.append(limiter)

    with limit_exceeded.connected_to(note, app):
        statuses(app.test_client(), "/", 2)
    assert told == [two]
