"""Limits among the hooks of an application."""

from __future__ import annotations

import pytest
from flask import Blueprint, Flask, Response, g, request
from flask.testing import FlaskClient

from flask_bucket import Limiter
from tests.ext.conftest import Clock, CountingStore, answer, remaining, statuses


def test_a_key_function_may_need_a_blueprints_before_request(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    bp = Blueprint("bp", __name__)

    @bp.before_request
    def identify() -> None:
        g.user = request.args["user"]

    bp.add_url_rule("/", "v", limiter.limit("1/minute", key_func=lambda: str(g.user))(answer()))
    app.register_blueprint(bp)
    assert statuses(client, "/?user=a", 2) == [200, 429]
    assert statuses(client, "/?user=b", 2) == [200, 429]


def test_a_hook_that_answers_before_the_limiter_charges_nothing(buckets: CountingStore) -> None:
    app = Flask("early")

    @app.before_request
    def maintenance() -> tuple[str, int]:
        return "Back at noon.", 503

    limiter = Limiter(app, redis=buckets, application_limits=["1/minute"])
    app.get("/")(limiter.limit("1/minute")(answer()))
    responses = [app.test_client().get("/") for _ in range(3)]
    assert [r.status_code for r in responses] == [503] * 3
    assert "X-RateLimit-Limit" not in responses[0].headers
    assert buckets.calls == []


def test_a_hook_that_answers_after_the_limiter_keeps_the_headers(
    app: Flask, buckets: CountingStore
) -> None:
    Limiter(app, redis=buckets, application_limits=["2/minute"])
    app.before_request(lambda: Response("Back at noon.", 503))
    assert remaining(app.test_client(), "/") == 1


def test_a_limited_hook_before_the_limiter_is_charged_with_the_rest(clock: Clock) -> None:
    app, buckets = Flask("hooked"), CountingStore(clock)
    limiter = Limiter(redis=buckets, application_limits=["9/minute"])
    app.before_request(limiter.limit("3/minute")(lambda: None))
    limiter.init_app(app)
    app.add_url_rule("/", "v", limiter.limit("1/hour")(answer()))
    app.add_url_rule("/other", "other", answer())
    client = app.test_client()
    assert statuses(client, "/", 3) == [200, 429, 429], "the hook's is given back"
    assert len(buckets) == 3
    with app.test_request_context("/", environ_overrides={"REMOTE_ADDR": "127.0.0.1"}):
        assert app.preprocess_request() is None
        assert limiter.current is not None
        assert [o.remaining for o in limiter.current.outcomes] == [1, 7]


@pytest.mark.parametrize("early", ["block", "function"])
def test_a_filter_frees_what_a_hook_before_the_limiter_s_charges(
    app: Flask, buckets: CountingStore, client: FlaskClient, early: str
) -> None:
    limiter = Limiter(redis=buckets)
    asked: list[str] = []
    limited = limiter.limit("1/minute")(answer())

    @app.before_request
    def charge() -> None:
        if early == "function":
            limited()
        else:
            with limiter.limit("1/minute", scope="early"):
                pass

    @limiter.request_filter
    def is_staff() -> bool:
        asked.append(request.path)
        return "staff" in request.args

    limiter.init_app(app)
    app.add_url_rule("/", view_func=answer())
    assert statuses(client, "/?staff", 3) == [200] * 3
    assert len(asked) == 3
    assert statuses(client, "/", 2) == [200, 429]


def test_a_filter_may_charge_a_block_of_its_own(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    @limiter.request_filter
    def passes() -> bool:
        with limiter.limit("2/minute", scope="filter"):
            return True

    app.add_url_rule("/", view_func=answer())
    assert statuses(client, "/", 3) == [200, 200, 429]
