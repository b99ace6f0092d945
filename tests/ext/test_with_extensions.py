"""Together with the extensions that people use beside this one, as they are."""

# mypy: disable-error-code="import-untyped, misc, untyped-decorator"
from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any, ClassVar

import flask_restful
import flask_smorest
import pytest
from flask import Flask, Response, jsonify, request
from flask.testing import FlaskClient
from flask.views import MethodView
from flask_httpauth import HTTPBasicAuth, HTTPTokenAuth
from flask_jwt_extended import (
    JWTManager,
    create_access_token,
    get_jwt_identity,
    jwt_required,
    verify_jwt_in_request,
)
from flask_jwt_extended import (
    current_user as jwt_user,
)
from flask_login import LoginManager, UserMixin, current_user, login_required, login_user

from flask_bucket import Limiter
from tests.ext.conftest import CountingStore, allowed, answer, statuses

# Flask-JWT-Extended.


@pytest.fixture
def tokens(app: Flask) -> dict[str, dict[str, str]]:
    """Headers that tell who one is, by name."""
    app.config["JWT_SECRET_KEY"] = "not a secret, but long enough to be one"
    jwt = JWTManager(app)
    jwt.user_lookup_loader(lambda header, data: {"name": data["sub"]})
    with app.app_context():
        made = {name: create_access_token(name) for name in ("alice", "bob")}
        made["late"] = create_access_token("late", expires_delta=timedelta(seconds=-60))
    return {name: {"Authorization": f"Bearer {token}"} for name, token in made.items()}


def test_jwt_identities_are_clients(
    app: Flask, limiter: Limiter, client: FlaskClient, tokens: dict[str, Any]
) -> None:
    @app.get("/")
    @jwt_required()
    @limiter.limit("1/minute", key_func=get_jwt_identity)
    def view() -> str:
        return str(get_jwt_identity())

    assert statuses(client, "/", 3) == [401] * 3
    assert statuses(client, "/", 2, headers=tokens["late"]) == [401] * 2
    assert statuses(client, "/", 2, headers=tokens["alice"]) == [200, 429]
    assert statuses(client, "/", 2, headers=tokens["bob"]) == [200, 429]


def test_jwt_rejections_charge_no_route_limit(
    app: Flask, limiter: Limiter, client: FlaskClient, tokens: Any, buckets: CountingStore
) -> None:
    @app.get("/")
    @jwt_required()
    @limiter.limit("1/minute")
    def view() -> str:
        return "fine"

    assert statuses(client, "/", 3) == [401] * 3
    assert buckets.calls == []


def test_an_optional_jwt_leaves_strangers_to_another_limit(
    app: Flask, limiter: Limiter, client: FlaskClient, tokens: dict[str, Any]
) -> None:
    @app.get("/")
    @jwt_required(optional=True)
    @limiter.limit("3/minute", key_func=get_jwt_identity)
    @limiter.limit("1/minute", exempt_when=lambda: get_jwt_identity() is not None)
    def view() -> str:
        return "fine"

    assert statuses(client, "/", 2) == [200, 429]
    assert allowed(client, "/", headers=tokens["alice"]) == 3


def test_a_jwt_can_be_verified_by_the_key_function_of_default_limits(
    app: Flask, buckets: CountingStore, tokens: dict[str, Any]
) -> None:
    def identity() -> str | None:
        verify_jwt_in_request(optional=True)
        return str(jwt_user["name"]) if get_jwt_identity() else None

    Limiter(app, redis=buckets, key_func=identity, default_limits=["1/minute"])
    app.get("/")(answer())
    client = app.test_client()
    assert statuses(client, "/", 2, headers=tokens["alice"]) == [200, 429]
    assert statuses(client, "/", 1, headers=tokens["bob"]) == [200]
    assert statuses(client, "/", 1, headers=tokens["late"]) == [401]
    assert statuses(client, "/", 3) == [200] * 3


def test_a_jwt_key_outside_its_decorator_surfaces(
    app: Flask, limiter: Limiter, client: FlaskClient, tokens: dict[str, Any]
) -> None:
    @app.get("/")
    @limiter.limit("1/minute", key_func=get_jwt_identity)
    @jwt_required()
    def view() -> str:
        return "fine"

    assert statuses(client, "/", 2, headers=tokens["alice"]) == [500, 500]


def test_an_async_view_behind_jwt_required_is_limited(
    app: Flask, limiter: Limiter, client: FlaskClient, tokens: dict[str, Any]
) -> None:
    @app.get("/")
    @jwt_required()
    @limiter.limit("1/minute", key_func=get_jwt_identity)
    async def view() -> str:
        return "fine"

    assert statuses(client, "/", 2, headers=tokens["alice"]) == [200, 429]


# Flask-HTTPAuth.


def test_http_users_are_clients(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    auth = HTTPBasicAuth()
    auth.verify_password(lambda name, password: name if password == "right" else None)

    @app.get("/")
    @auth.login_required
    @limiter.limit("1/minute", key_func=auth.current_user)
    def view() -> str:
        return "fine"

    assert statuses(client, "/", 2) == [401] * 2
    assert statuses(client, "/", 2, auth=("alice", "wrong")) == [401] * 2
    assert buckets.calls == []
    assert statuses(client, "/", 2, auth=("alice", "right")) == [200, 429]
    assert statuses(client, "/", 2, auth=("bob", "right")) == [200, 429]


def test_http_tokens_that_are_wrong_can_be_counted(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    auth = HTTPTokenAuth()
    auth.verify_token(lambda token: "alice" if token == "right" else None)

    @app.get("/")
    @limiter.limit("2/minute", deduct_when=lambda response: response.status_code == 401)
    @auth.login_required
    def view() -> str:
        return "fine"

    right, wrong = ({"Authorization": f"Bearer {token}"} for token in ("right", "wrong"))
    assert statuses(client, "/", 5, headers=right) == [200] * 5
    assert statuses(client, "/", 3, headers=wrong) == [401, 401, 429]


# Flask-Login.


class User(UserMixin):
    def __init__(self, name: str) -> None:
        self.id = name


@pytest.fixture
def login(app: Flask) -> LoginManager:
    app.secret_key = "not a secret"
    manager = LoginManager(app)
    manager.user_loader(User)
    manager.request_loader(lambda req: User(req.args["as"]) if "as" in req.args else None)
    app.add_url_rule("/login/<name>", "login", lambda name: str(login_user(User(name))))
    return manager


def test_logged_in_users_are_clients(
    app: Flask, limiter: Limiter, client: FlaskClient, login: LoginManager, buckets: CountingStore
) -> None:
    @app.get("/")
    @login_required
    @limiter.limit("1/minute", key_func=lambda: current_user.get_id())
    def view() -> str:
        return "fine"

    assert statuses(client, "/", 2) == [401] * 2
    assert buckets.calls == []
    client.get("/login/alice")
    assert statuses(client, "/", 2) == [200, 429]
    client.get("/login/bob")
    assert statuses(client, "/", 2) == [200, 429]


def test_logged_in_users_may_be_the_key_of_default_limits(
    app: Flask, login: LoginManager, buckets: CountingStore
) -> None:
    limiter = Limiter(
        app,
        redis=buckets,
        key_func=lambda: current_user.get_id(),
        default_limits=["1/minute"],
    )
    app.add_url_rule("/", "v", answer())
    app.add_url_rule("/fresh", "fresh", login_required(limiter.limit("2/minute")(answer())))
    client = app.test_client()
    assert statuses(client, "/?as=alice", 2) == [200, 429]
    assert statuses(client, "/?as=bob", 1) == [200]
    assert statuses(client, "/", 3) == [200] * 3, "anonymous users have no id"
    assert allowed(client, "/fresh?as=bob") == 2


def test_an_async_view_behind_login_required_is_limited(
    app: Flask, limiter: Limiter, client: FlaskClient, login: LoginManager
) -> None:
    @app.get("/")
    @login_required
    @limiter.limit("1/minute")
    async def view() -> str:
        return "fine"

    assert statuses(client, "/?as=alice", 2) == [200, 429]


# Flask-RESTful.


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


# flask-smorest.


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
