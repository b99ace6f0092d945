"""Frameworks on Flask that answer errors themselves, with the real ones."""

from __future__ import annotations

from functools import wraps
from typing import Any

import flask_restful  # type: ignore[import-untyped]
import flask_restx  # type: ignore[import-untyped]
import flask_smorest
import pytest
from flask import Flask, Response
from flask.testing import FlaskClient

from flask_bucket import Limiter
from tests.ext.conftest import CountingStore, answer, statuses


class TakenError(Exception):
    """A name is taken, which Flask-RESTful is told to answer with 409."""


def test_restful_errors_are_judged_by_the_response_that_is_sent(
    app: Flask, buckets: CountingStore
) -> None:
    limiter = Limiter(app, redis=buckets)
    api = flask_restful.Api(app, errors={"TakenError": {"message": "taken", "status": 409}})

    class Name(flask_restful.Resource):  # type: ignore[misc]  # untyped
        @limiter.limit("2/minute", deduct_when=lambda response: response.status_code != 409)
        def post(self) -> Any:
            raise TakenError

    api.add_resource(Name, "/")
    assert statuses(app.test_client(), "/", 4, method="POST") == [409] * 4


class BusyError(Exception):
    """Something is busy, which Flask-RESTful is told to answer with 503."""


def test_a_restful_error_that_is_answered_with_503_is_no_crash(
    app: Flask, buckets: CountingStore
) -> None:
    limiter = Limiter(app, redis=buckets)
    api = flask_restful.Api(app, errors={"BusyError": {"message": "busy", "status": 503}})

    class Name(flask_restful.Resource):  # type: ignore[misc]  # untyped
        @limiter.limit("2/minute", deduct_when=lambda response: response.status_code < 500)
        def post(self) -> Any:
            raise BusyError

    api.add_resource(Name, "/")
    assert statuses(app.test_client(), "/", 4, method="POST") == [503] * 4


def test_restx_error_handlers_are_judged_by_their_response(
    app: Flask, buckets: CountingStore
) -> None:
    limiter = Limiter(app, redis=buckets)
    api = flask_restx.Api(app)
    api.errorhandler(TakenError)(lambda error: ({"message": "taken"}, 409))

    @api.route("/name")
    class Name(flask_restx.Resource):  # type: ignore[misc]  # untyped
        @limiter.limit("2/minute", deduct_when=lambda response: response.status_code != 409)
        def post(self) -> Any:
            raise TakenError

    assert statuses(app.test_client(), "/name", 4, method="POST") == [409] * 4


def test_a_crash_under_restful_keeps_its_tokens(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets)
    api = flask_restful.Api(app)

    class Name(flask_restful.Resource):  # type: ignore[misc]  # untyped
        @limiter.limit("2/minute", deduct_when=lambda response: response.status_code != 500)
        def post(self) -> Any:
            raise RuntimeError

    api.add_resource(Name, "/")
    assert statuses(app.test_client(), "/", 3, method="POST") == [500, 500, 429]


@pytest.mark.parametrize("framework", [flask_restful, flask_restx])
@pytest.mark.parametrize(
    "said", [("wait a little", 429, {"X-Why": "limit"}), Response("wait a little", 429)]
)
def test_the_answer_of_on_breach_reaches_the_client(
    app: Flask, buckets: CountingStore, framework: Any, said: Any
) -> None:
    limiter = Limiter(app, redis=buckets, on_breach=lambda decision: said)
    api = framework.Api(app)

    @app.after_request
    def hook(response: Response) -> Response:
        response.headers["X-Hook"] = "kept"
        return response

    class Item(framework.Resource):  # type: ignore[misc]  # one of two
        @limiter.limit("1/minute")
        def get(self) -> Any:
            return {"item": 1}

    api.add_resource(Item, "/item")
    client = app.test_client()
    assert client.get("/item").status_code == 200
    response = client.get("/item")
    assert (response.status_code, response.text) == (429, "wait a little")
    assert response.headers["Retry-After"] == "60"
    assert response.headers["X-Hook"] == "kept"


def test_the_answer_of_on_breach_reaches_the_client_though_exceptions_are_trapped(
    app: Flask, buckets: CountingStore
) -> None:
    app.config["TRAP_HTTP_EXCEPTIONS"] = True  # as Connexion does
    app.config["PROPAGATE_EXCEPTIONS"] = True
    limiter = Limiter(app, redis=buckets, on_breach=lambda decision: ("wait a little", 418))
    app.register_error_handler(Exception, lambda error: ("another", 500))
    app.get("/")(limiter.limit("1/minute")(answer()))
    client = app.test_client()
    client.get("/")
    response = client.get("/")
    assert (response.status_code, response.text) == (418, "wait a little")
    assert response.headers["Retry-After"] == "60"


@pytest.mark.parametrize("framework", [flask_restful, flask_restx])
def test_a_refusal_without_on_breach_is_a_429_of_the_framework(
    app: Flask, buckets: CountingStore, framework: Any
) -> None:
    limiter = Limiter(app, redis=buckets)
    api = framework.Api(app)

    class Item(framework.Resource):  # type: ignore[misc]  # one of two
        @limiter.limit("1/minute")
        def get(self) -> Any:
            return {"item": 1}

    api.add_resource(Item, "/item")
    assert statuses(app.test_client(), "/item", 2) == [200, 429]


def test_an_application_can_be_limited_whatever_replaced_the_class_flask(
    buckets: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Instrumented(Flask):
        """The class that OpenTelemetry's instrumentation puts in place of ``flask.Flask``."""

    before = Flask("before")
    monkeypatch.setattr("flask.Flask", Instrumented)
    for app in (before, Instrumented("after")):
        limiter = Limiter(app, redis=buckets, name=app.name)
        app.get("/")(limiter.limit("1/minute")(answer()))
        assert statuses(app.test_client(), "/", 2) == [200, 429]


def test_an_error_handler_that_is_refused_answers_429(
    app: Flask, limiter: Limiter, buckets: CountingStore
) -> None:
    app.register_error_handler(404, limiter.limit("2/minute")(lambda error: ("none", 404)))
    client = app.test_client()
    assert statuses(client, "/nowhere", 3) == [404, 404, 429]
    response = client.get("/nowhere")
    assert response.json == {"error": "Too Many Requests", "retryAfterMs": 30000}
    assert response.headers["Retry-After"] == "30"


@pytest.mark.parametrize("kind", ["decorated", "method"])
def test_an_error_handler_that_is_refused_within_another_callable_answers_429(
    app: Flask, limiter: Limiter, client: FlaskClient, kind: str
) -> None:
    class Handlers:
        @limiter.limit("1/minute")
        def lost(self, error: Exception) -> tuple[str, int]:
            return "none", 404

    method = Handlers().lost

    @wraps(method)
    def decorated(error: Exception) -> Any:
        return method(error)

    app.register_error_handler(404, decorated if kind == "decorated" else method)
    assert statuses(client, "/nowhere", 2) == [404, 429]


def test_smorest_tells_the_error_message(app: Flask, buckets: CountingStore) -> None:
    app.config.update(API_TITLE="api", API_VERSION="1", OPENAPI_VERSION="3.0.2")
    limiter, blueprint = Limiter(app, redis=buckets), flask_smorest.Blueprint("b", "b")
    blueprint.route("/")(limiter.limit("1/day", error_message="too fast")(answer()))
    flask_smorest.Api(app).register_blueprint(blueprint)
    client = app.test_client()
    client.get("/")
    refused: Any = client.get("/").json
    assert refused == {"code": 429, "status": "Too Many Requests", "message": "too fast"}


@pytest.mark.parametrize("framework", [flask_restful, flask_restx])
def test_restful_and_restx_tell_the_error_message(
    app: Flask, buckets: CountingStore, framework: Any
) -> None:
    limiter, api = Limiter(app, redis=buckets), framework.Api(app)

    class Thing(framework.Resource):  # type: ignore[misc]  # untyped
        @limiter.limit("1/day", error_message="too fast")
        def get(self) -> Any:
            return {}

    api.add_resource(Thing, "/thing")
    client = app.test_client()
    client.get("/thing")
    assert client.get("/thing").json == {"message": "too fast"}
