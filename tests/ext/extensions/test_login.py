"""Together with Flask-Login."""

# mypy: disable-error-code="import-untyped, misc, untyped-decorator"

from __future__ import annotations

import pytest
from flask import Flask
from flask.testing import FlaskClient
from flask_login import LoginManager, UserMixin, current_user, login_required, login_user

from flask_bucket import Limiter
from tests.ext.conftest import CountingStore, allowed, answer, statuses


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
