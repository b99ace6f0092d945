"""Two limited views, and the bans that begin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from flask_bucket import Limiter, Outcome, client_banned, request_header
from tests.ext.conftest import answer

DAY = 86_400
by_tenant = request_header("X-Tenant")


@pytest.fixture
def began() -> Iterator[list[Outcome]]:
    """The bans that were signalled."""
    outcomes: list[Outcome] = []

    def note(sender: Flask, outcome: Outcome, **_: Any) -> None:
        outcomes.append(outcome)

    with client_banned.connected_to(note):
        yield outcomes


def shop(app: Flask, store: object, bans: Any = "3/hour for 1 day", **options: Any) -> FlaskClient:
    """Serve two views with a limit each, and one without."""
    return stocked(app, Limiter(app, redis=store, bans=bans, **options))


def stocked(app: Flask, limiter: Limiter) -> FlaskClient:
    app.add_url_rule("/", "index", limiter.limit("1/minute")(answer()))
    app.add_url_rule("/other", "other", limiter.limit("5/minute")(answer()))
    app.add_url_rule("/free", "free", answer())
    return app.test_client()
