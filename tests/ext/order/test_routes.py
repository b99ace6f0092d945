"""Limits above the route, and views that are limited elsewhere."""

from __future__ import annotations

import gc

from flask import Blueprint, Flask
from flask.testing import FlaskClient

from flask_bucket import Limiter
from tests.ext.conftest import CountingStore, allowed, answer, statuses


def test_a_limit_above_the_route_is_enforced(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    @limiter.limit("2/minute")
    @app.get("/")
    def view() -> str:
        return "fine"

    assert statuses(client, "/", 3) == [200, 200, 429]


def test_a_limit_above_the_route_is_enforced_when_its_name_is_gone(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    def register() -> None:
        @limiter.limit("2/minute")
        @app.get("/")
        def view() -> str:
            return "fine"

    register()
    gc.collect()
    assert statuses(client, "/", 3) == [200, 200, 429]


def test_a_limit_above_a_blueprints_route_is_enforced_in_a_factory(buckets: CountingStore) -> None:
    limiter = Limiter(redis=buckets)

    def create_app() -> Flask:
        app, bp = Flask("made"), Blueprint("bp", __name__)

        @limiter.limit("2/minute")
        @bp.get("/")
        @limiter.limit("9/minute")
        def view() -> str:
            return "fine"

        app.register_blueprint(bp)
        limiter.init_app(app)
        return app

    app = create_app()
    gc.collect()
    assert allowed(app.test_client(), "/") == 2


def test_a_limit_above_the_route_leaves_automatic_options_alone(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    limiter.limit("1/minute")(app.get("/")(answer()))
    assert statuses(client, "/", 3, method="OPTIONS") == [200] * 3


def test_a_limit_above_the_route_counts_options_that_the_view_answers(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    """Otherwise a client could try passwords with OPTIONS."""
    methods = ["POST", "OPTIONS"]
    limiter.limit("2/minute")(app.route("/", methods=methods)(answer()))
    assert statuses(client, "/", 3, method="OPTIONS") == [200, 200, 429]


def test_a_limit_above_the_route_is_enforced_for_exempt_methods_too(
    buckets: CountingStore,
) -> None:
    app = Flask("exempting")
    app.config["BUCKET_EXEMPT_METHODS"] = ["GET"]
    limiter = Limiter(app, redis=buckets)
    limiter.limit("1/minute")(app.get("/")(answer()))
    assert statuses(app.test_client(), "/", 2) == [200, 429]


def test_a_function_limited_for_one_endpoint_is_free_as_another_view(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    view = answer()
    app.add_url_rule("/limited", "limited", limiter.limit("1/minute")(view))
    app.add_url_rule("/tight", "tight", limiter.limit("2/minute")(view))
    app.add_url_rule("/free", "free", view)
    assert [allowed(client, path) for path in ("/limited", "/tight", "/free")] == [1, 2, 30]


def test_a_class_method_limited_elsewhere_is_free(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    from flask.views import MethodView

    def get(self: MethodView) -> str:
        return "fine"

    limited = type("Limited", (MethodView,), {"get": limiter.limit("1/minute")(get)})
    free = type("Free", (MethodView,), {"get": get})
    app.add_url_rule("/limited", view_func=limited.as_view("limited"))  # type: ignore[attr-defined]
    app.add_url_rule("/free", view_func=free.as_view("free"))  # type: ignore[attr-defined]
    assert (allowed(client, "/free"), allowed(client, "/limited")) == (30, 1)
