"""Together with Flask-JWT-Extended."""

# mypy: disable-error-code="import-untyped, misc, untyped-decorator"

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from flask_jwt_extended import (
    JWTManager,
    create_access_token,
    get_jwt_identity,
    jwt_required,
    verify_jwt_in_request,
)
from flask_jwt_extended import current_user as jwt_user

from flask_bucket import Limiter
from tests.ext.conftest import CountingStore, allowed, answer, statuses


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
