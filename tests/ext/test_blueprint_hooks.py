"""A blueprint's limit is charged where it stands among the blueprint's own hooks."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Blueprint, Flask, abort, g, request
from flask.testing import FlaskClient

from flask_bucket import Limiter
from tests.ext.conftest import Clock, CountingStore, answer, statuses

PLANS = {"gold": "3/minute", "free": "1/minute"}


def blueprint(name: str = "api", path: str = "/") -> Blueprint:
    made = Blueprint(name, __name__)
    made.add_url_rule(path, "v", answer())
    return made


def check_key() -> None:
    """Set the plan of a client, as most APIs do in a hook of their blueprint."""
    g.plan = request.headers.get("X-Plan")
    if g.plan not in PLANS:
        abort(401)


@pytest.fixture
def app_limited(app: Flask, buckets: CountingStore) -> Limiter:
    return Limiter(app, redis=buckets, application_limits=["9/minute"])


def test_a_limit_put_on_after_a_hook_sees_what_the_hook_found(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    bp = blueprint()
    bp.before_request(check_key)
    limiter.limit(lambda: PLANS[g.plan], key_func=lambda: g.plan)(bp)
    app.register_blueprint(bp)
    assert statuses(client, "/", 4, headers={"X-Plan": "gold"}) == [200, 200, 200, 429]
    assert statuses(client, "/", 2, headers={"X-Plan": "free"}) == [200, 429]


def test_a_request_that_the_hook_rejects_is_not_charged(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    bp = blueprint()
    bp.before_request(check_key)
    limiter.limit("1/minute")(bp)
    app.register_blueprint(bp)
    assert statuses(client, "/", 3) == [401, 401, 401]
    assert buckets.calls == []


def test_a_limit_put_on_before_a_hook_is_charged_before_it(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    bp = blueprint()
    limiter.limit("1/minute")(bp)
    bp.before_request(check_key)
    app.register_blueprint(bp)
    assert statuses(client, "/", 2) == [401, 429]


def test_application_and_blueprint_limits_are_one_call_where_no_hook_stands_between(
    app: Flask, app_limited: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    bp = app_limited.limit("5/minute")(app_limited.limit("2/second")(blueprint()))
    bp.before_request(lambda: None)
    app.register_blueprint(bp)
    client.get("/")
    assert buckets.calls == ["take"]
    assert len(buckets.keys) == 3


def test_nested_blueprints_are_one_call_where_no_hook_stands_between(
    app: Flask, app_limited: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    outer, inner = Blueprint("outer", __name__), blueprint("inner")
    app_limited.limit("5/minute")(outer)
    app_limited.limit("4/minute", override_defaults=False)(inner)
    outer.register_blueprint(inner)
    app.register_blueprint(outer)
    client.get("/")
    assert buckets.calls == ["take"]
    assert len(buckets.keys) == 3


def test_a_hook_of_the_application_after_the_limiter_makes_it_two_calls(
    app: Flask, app_limited: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.before_request(lambda: None)
    app.register_blueprint(app_limited.limit("5/minute")(blueprint()))
    client.get("/")
    assert buckets.calls == ["take", "take"]


def test_a_refusal_at_a_blueprints_hook_gives_back_what_was_charged_before(
    app: Flask, app_limited: Limiter, client: FlaskClient, buckets: CountingStore, clock: Clock
) -> None:
    bp = blueprint()
    bp.before_request(check_key)
    app_limited.limit("1/minute")(bp)
    app.register_blueprint(bp)
    app.add_url_rule("/free", "free", answer())
    headers = {"X-Plan": "free"}
    assert statuses(client, "/", 5, headers=headers) == [200, 429, 429, 429, 429]
    assert client.get("/free").headers["X-RateLimit-Remaining"] == "7"


def test_a_limit_put_on_a_registered_blueprint_is_charged_with_the_application_s(
    app: Flask, app_limited: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    bp = blueprint()
    bp.before_request(check_key)
    app.register_blueprint(bp)
    app_limited.limit("1/minute")(bp)
    assert statuses(client, "/", 2) == [401, 429]
    assert buckets.calls == ["take", "take"]


def test_hooks_of_nested_blueprints_run_outer_before_inner(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    outer, inner = Blueprint("outer", __name__), blueprint("inner")
    seen: list[str] = []

    def key(name: str) -> Any:
        def key_func() -> str:
            seen.append(name)
            return name

        return key_func

    inner.before_request(lambda: None)
    limiter.limit("5/minute", key_func=key("inner"), override_defaults=False)(inner)
    limiter.limit("5/minute", key_func=key("outer"))(outer)
    outer.register_blueprint(inner)
    app.register_blueprint(outer)
    client.get("/")
    assert seen == ["outer", "inner"]


def test_a_blueprint_s_limit_in_an_application_without_the_limiter_is_a_clear_error(
    limiter: Limiter,
) -> None:
    other = Flask("forgotten")
    other.testing = True
    other.register_blueprint(limiter.limit("1/minute")(blueprint()))
    with pytest.raises(RuntimeError, match=r"does not know the application 'forgotten'"):
        other.test_client().get("/")


def test_an_exemption_of_an_outer_blueprint_leaves_the_limit_of_an_inner_one(
    app: Flask, buckets: CountingStore
) -> None:
    limiter = Limiter(app, redis=buckets, default_limits=["1/minute"])
    outer, inner = blueprint("outer", "/outer"), blueprint("inner", "/login")
    limiter.limit("1/hour")(outer)
    limiter.limit("2/hour")(inner)
    limiter.exempt(outer)
    outer.register_blueprint(inner)
    app.register_blueprint(outer)
    client = app.test_client()
    assert statuses(client, "/outer", 3) == [200, 200, 200]
    assert statuses(client, "/login", 3) == [200, 200, 429]


@pytest.mark.parametrize(
    ("kept", "left"), [("application", 3), ("blueprint", 2), ("default", 1), (None, 9)]
)
def test_an_exemption_may_keep_some_limits(
    app: Flask, buckets: CountingStore, kept: str | None, left: int
) -> None:
    limiter = Limiter(
        app, redis=buckets, application_limits=["3/minute"], default_limits=["1/minute"]
    )
    bp = Blueprint("api", __name__)
    limiter.limit("2/minute", override_defaults=False)(bp)
    bp.get("/")(limiter.exempt(**({kept: False} if kept else {}))(answer()))
    app.register_blueprint(bp)
    assert statuses(app.test_client(), "/", 9).count(200) == left
