"""Together with Flask-RESTful."""

# mypy: disable-error-code="import-untyped, misc, untyped-decorator"

from __future__ import annotations

import functools
from typing import Any, ClassVar

import flask_restful
from flask import Flask, Response, request
from flask.testing import FlaskClient

from flask_bucket import Limiter
from tests.ext.conftest import CountingStore, allowed, statuses


def test_restful_resources_are_limited_by_method(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets, default_limits=["3/minute"])
    api = flask_restful.Api(app)

    class Item(flask_restful.Resource):
        @limiter.limit("1/minute")
        def get(self) -> dict[str, str]:
            return {"item": "got"}

        def post(self) -> dict[str, str]:
            return {"item": "posted"}

    api.add_resource(Item, "/item")
    client = app.test_client()
    assert client.get("/item").json == {"item": "got"}
    refused = client.get("/item")
    assert refused.status_code == 429
    assert refused.json == {"message": "Too Many Requests"}, "as RESTful answers errors"
    assert refused.headers["Retry-After"] == "60"
    assert refused.headers["Cache-Control"] == "no-store"
    assert refused.headers["X-RateLimit-Remaining"] == "0"
    assert allowed(client, "/item", method="POST") == 3


def test_restful_decorators_limit_all_methods(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets, default_limits=["1/minute"])
    api = flask_restful.Api(app, decorators=[limiter.limit("4/minute")])

    class Plain(flask_restful.Resource):
        def get(self) -> str:
            return "got"

    class Own(flask_restful.Resource):
        decorators: ClassVar = [limiter.limit("2/minute")]

        def get(self) -> str:
            return "got"

    api.add_resource(Plain, "/plain")
    api.add_resource(Own, "/own")
    client = app.test_client()
    assert (allowed(client, "/plain"), allowed(client, "/own")) == (4, 2)


def test_restful_method_decorators_are_charged(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    api = flask_restful.Api(app)

    class Item(flask_restful.Resource):
        method_decorators: ClassVar = {"get": [limiter.limit("9/minute"), limiter.limit("2/hour")]}

        def get(self) -> str:
            return "got"

        def put(self) -> str:
            return "put"

    api.add_resource(Item, "/")
    assert statuses(client, "/", 3) == [200, 200, 429]
    assert statuses(client, "/", 3, method="PUT") == [200] * 3


def reviews(app: Flask, buckets: CountingStore, *decorators: str, **limits: Any) -> Limiter:
    """Serve a resource whose methods are decorated anew with each request."""
    limiter = Limiter(app, redis=buckets, **limits)

    class Reviews(flask_restful.Resource):
        method_decorators: ClassVar = [limiter.limit(limit) for limit in decorators]

        def get(self) -> str:
            return "got"

        @limiter.limit("2/hour")
        def post(self) -> str:
            return "posted"

    flask_restful.Api(app).add_resource(Reviews, "/")
    return limiter


def test_restful_method_decorators_override_default_limits(
    app: Flask, buckets: CountingStore
) -> None:
    reviews(app, buckets, "3/minute", default_limits="1/minute")
    assert allowed(app.test_client(), "/") == 3


def test_restful_method_decorators_are_known_before_a_request(
    app: Flask, buckets: CountingStore
) -> None:
    reviews(app, buckets, "3/minute", "9/day")
    planner = app.extensions["flask_bucket"]["bucket"].planner
    bounds = {method: planner.plan("reviews", method).bounds for method in ("GET", "POST")}
    assert {m: [str(b.fixed[0][0]) for b in found] for m, found in bounds.items()} == {
        "GET": ["3/minute", "9/day"],
        "POST": ["3/minute", "9/day", "2/hour"],
    }
    assert {bound.source for bound in bounds["GET"]} == {"view"}


def test_restful_method_decorators_give_back_what_they_refuse(
    app: Flask, buckets: CountingStore
) -> None:
    reviews(app, buckets, "2/minute", application_limits="5/minute")
    client = app.test_client()
    assert allowed(client, "/") == 2
    assert client.get("/elsewhere").headers["X-RateLimit-Remaining"] == "2"


def test_restful_method_decorators_that_stand_together_are_one_call(
    app: Flask, buckets: CountingStore
) -> None:
    reviews(app, buckets, "3/minute", "9/day")
    app.test_client().get("/")
    buckets.calls.clear()
    app.test_client().get("/")
    assert len(buckets.calls) == 1


def test_other_decorators_may_stand_between_restful_ones(app: Flask, limiter: Limiter) -> None:
    def plain(function: Any) -> Any:
        return functools.wraps(function)(lambda *args, **kwargs: function(*args, **kwargs))

    class Item(flask_restful.Resource):
        method_decorators: ClassVar = [limiter.limit("9/day"), plain, limiter.limit("2/minute")]

        def get(self) -> list[str]:
            assert limiter.current is not None
            return [str(outcome.limit) for outcome in limiter.current.outcomes]

    flask_restful.Api(app).add_resource(Item, "/")
    client = app.test_client()
    assert client.get("/").get_json() == ["2/minute", "9/day"]
    assert [client.get("/").status_code for _ in range(2)] == [200, 429]


def test_a_restful_abort_is_no_crash(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    api = flask_restful.Api(app)

    class Login(flask_restful.Resource):
        @limiter.limit("1/minute", deduct_when=lambda response: response.status_code == 401)
        def get(self) -> None:
            flask_restful.abort(int(request.args["status"]))

    api.add_resource(Login, "/")
    assert statuses(client, "/?status=404", 3) == [404] * 3
    assert statuses(client, "/?status=401", 2) == [401, 429]


def test_on_breach_answers_for_a_restful_resource(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    api = flask_restful.Api(app)

    class Item(flask_restful.Resource):
        @limiter.limit("1/minute", on_breach=lambda decision: Response("mine", 429))
        def get(self) -> str:
            return "got"

    api.add_resource(Item, "/")
    client.get("/")
    assert client.get("/").text == "mine"
