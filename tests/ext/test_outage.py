"""Requests while the store is in trouble: the policies, from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from flask_bucket import (
    Charge,
    Decision,
    Limiter,
    MemoryStore,
    StoreUnavailable,
    store_recovered,
    store_unavailable,
)
from flask_bucket.stores.base import WrappingStore
from tests.ext.conftest import answer, statuses


class Fickle(WrappingStore):
    """A store that is out of reach for the limits named."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(lambda: 0))
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


def local_app(fickle: Fickle, **options: Any) -> FlaskClient:
    """Return requests to an application that counts in its process during an outage."""
    app = Flask("app")
    app.config["BUCKET_ON_ERROR"] = "local"
    app.config["BUCKET_RECOVERY_INTERVAL"] = 1e-9
    app.config["BUCKET_REFUSAL_CACHE"] = 0
    limiter = Limiter(app, redis=fickle, application_limits="3/hour", key_func=lambda: "c")
    app.add_url_rule("/", "index", limiter.limit("1/minute", **options)(answer()))
    app.add_url_rule("/other", "other", answer())
    return app.test_client()


@pytest.mark.parametrize("away", [{"per-hour", "per-minute"}, {"per-hour"}])
def test_a_refusal_gives_back_what_was_counted_in_the_process(
    fickle: Fickle, away: set[str]
) -> None:
    client = local_app(fickle)
    fickle.away = away
    assert statuses(client, "/", 5) == [200, 429, 429, 429, 429]
    assert statuses(client, "/other", 3) == [200, 200, 429]


def test_tokens_of_the_process_are_not_given_back_to_the_store(fickle: Fickle) -> None:
    client = local_app(fickle)
    assert statuses(client, "/", 1) == [200]  # of three in the store, two are left
    fickle.away = {"per-hour"}
    assert statuses(client, "/", 2) == [429, 429]
    fickle.away = set()
    assert statuses(client, "/other", 3) == [200, 200, 429]


def test_deduct_when_holds_for_tokens_of_the_process(fickle: Fickle) -> None:
    client = local_app(fickle, deduct_when=lambda response: False)
    fickle.away = {"per-hour", "per-minute"}
    assert statuses(client, "/", 3) == [200, 200, 200]


def test_an_outage_begins_and_ends_though_receivers_of_its_signals_raise(
    fickle: Fickle, client: FlaskClient
) -> None:
    def fail(sender: Flask, **about: Any) -> None:
        raise RuntimeError("the pager is away")

    app = client.application
    with store_unavailable.connected_to(fail, app), store_recovered.connected_to(fail, app):
        fickle.away = {"per-hour", "per-minute"}
        assert statuses(client, "/", 3) == [500, 200, 200]
        fickle.away = set()
        assert statuses(client, "/", 3) == [500, 200, 200]
    assert "X-RateLimit-Limit" in client.get("/").headers
