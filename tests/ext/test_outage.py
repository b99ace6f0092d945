"""Requests while the store is in trouble: the policies, from outside."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from flask import Flask
from flask.testing import FlaskClient

from flask_bucket import Charge, Decision, Limiter, MemoryStore, StoreUnavailable
from flask_bucket.stores.base import WrappingStore
from tests.ext.conftest import answer


class Fickle(WrappingStore):
    """A store that is out of reach for the limits named."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.away: set[str] = set()

    def take(
        self,
        charges: Sequence[Charge],
        held: Sequence[Charge] = (),
        shadow: Sequence[Charge] = (),
        now: int | None = None,
    ) -> Decision:
        if self.away & {charge.limit.name for charge in (*charges, *shadow)}:
            raise StoreUnavailable("away")
        return super().take(charges, held, shadow, now)


@pytest.fixture
def fickle() -> Fickle:
    return Fickle()


@pytest.fixture
def client(fickle: Fickle) -> FlaskClient:
    """Requests to a view with a limit of its own, in an application with one."""
    app = Flask("app")
    app.config["BUCKET_RECOVERY_INTERVAL"] = 1e-9  # each call tries the store again
    limiter = Limiter(app, redis=fickle, application_limits="5/hour")
    app.add_url_rule("/", "index", limiter.limit("9/minute")(answer()))
    return app.test_client()


@pytest.mark.parametrize("away", ["per-hour", "per-minute"])
def test_a_request_that_was_not_counted_in_full_has_no_rate_headers(
    fickle: Fickle, client: FlaskClient, away: str
) -> None:
    assert "X-RateLimit-Limit" in client.get("/").headers
    fickle.away = {away}
    response = client.get("/")
    assert response.status_code == 200
    assert "X-RateLimit-Limit" not in response.headers
