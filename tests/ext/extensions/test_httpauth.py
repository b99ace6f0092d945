"""Together with Flask-HTTPAuth."""

# mypy: disable-error-code="import-untyped, misc, untyped-decorator"

from __future__ import annotations

from flask import Flask
from flask.testing import FlaskClient
from flask_httpauth import HTTPBasicAuth, HTTPTokenAuth

from flask_bucket import Limiter
from tests.ext.conftest import CountingStore, statuses


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
