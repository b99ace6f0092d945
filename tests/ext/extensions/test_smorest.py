"""Together with flask-smorest."""

# mypy: disable-error-code="import-untyped, misc, untyped-decorator"

from __future__ import annotations

from typing import Any

import flask_smorest
import pytest
from flask import Flask, jsonify
from flask.testing import FlaskClient
from flask.views import MethodView

from flask_bucket import Limiter
from tests.ext.conftest import CountingStore, allowed, statuses


@pytest.fixture
def smorest(app: Flask) -> flask_smorest.Api:
    app.config.update(API_TITLE="shop", API_VERSION="1", OPENAPI_VERSION="3.0.3")
    return flask_smorest.Api(app)


def test_smorest_resources_are_limited(
    app: Flask, buckets: CountingStore, smorest: flask_smorest.Api
) -> None:
    limiter = Limiter(app, redis=buckets, default_limits=["5/minute"])
    blueprint = flask_smorest.Blueprint("items", __name__)

    @blueprint.route("/items")
    class Items(MethodView):
        @limiter.limit("1/minute")
        @blueprint.response(200)
        def get(self) -> Any:
            return {"item": "got"}

        @blueprint.response(201)
        @limiter.limit("2/minute")
        def post(self) -> Any:
            return {"item": "posted"}

        @blueprint.response(200)
        def put(self) -> Any:
            return {"item": "put"}

    @blueprint.route("/plain")
    @blueprint.response(200)
    @limiter.limit("3/minute")
    def plain() -> Any:
        return {"plain": True}

    smorest.register_blueprint(blueprint)
    client = app.test_client()
    assert client.get("/items").json == {"item": "got"}
    refused: Any = client.get("/items")
    assert (refused.status_code, refused.json["code"]) == (429, 429)
    assert refused.headers["Retry-After"] == "60"
    assert allowed(client, "/items", method="POST") == 2
    assert allowed(client, "/items", method="PUT") == 5
    assert allowed(client, "/plain") == 3


def test_the_specification_of_smorest_tells_the_limits(
    app: Flask, limiter: Limiter, smorest: flask_smorest.Api
) -> None:
    blueprint = flask_smorest.Blueprint("pets", __name__, url_prefix="/pets")

    @blueprint.route("/<int:number>")
    class Pet(MethodView):
        @blueprint.response(200)
        @limiter.limit("5/second")
        def get(self, number: int) -> dict[str, int]:
            return {"number": number}

        @blueprint.response(204)
        def delete(self, number: int) -> None:
            """Delete a pet."""

    smorest.register_blueprint(blueprint)
    with app.app_context():
        spec = limiter.openapi(smorest.spec.to_dict())
    item = spec["paths"]["/pets/{number}"]
    assert "Retry-After" in item["get"]["responses"]["429"]["headers"]
    assert "X-RateLimit-Remaining" in item["get"]["responses"]["200"]["headers"]
    assert "429" not in item["delete"]["responses"]


def test_a_smorest_blueprint_is_limited(
    app: Flask, limiter: Limiter, client: FlaskClient, smorest: flask_smorest.Api
) -> None:
    blueprint = flask_smorest.Blueprint("items", __name__)

    @blueprint.route("/")
    class Items(MethodView):
        @blueprint.response(200)
        def get(self) -> Any:
            return jsonify("got")

    smorest.register_blueprint(limiter.limit("2/minute")(blueprint))
    assert statuses(client, "/", 3) == [200, 200, 429]
