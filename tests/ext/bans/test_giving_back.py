"""Settling, giving back and resetting leave bans alone or lift them."""

from __future__ import annotations

import pytest
from flask import Flask, request

from flask_bucket import Charge, Limiter
from flask_bucket.stores.base import WrappingStore
from tests.ext.bans.conftest import stocked
from tests.ext.conftest import CountingStore, statuses


def test_settling_and_giving_back_concern_no_ban(
    app: Flask, buckets: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled: list[Charge] = []
    monkeypatch.setattr(buckets, "settle", lambda charges, now=None: settled.extend(charges))
    limiter = Limiter(app, redis=buckets, bans="9/hour for 1 day", application_limits="9/hour")

    @app.get("/settle")
    @limiter.limit("9/minute", cost=2, ban="9/hour for 1 day")
    def settle() -> str:
        limiter.settle(1)
        return "fine"

    @app.get("/back")
    @limiter.limit("9/minute", deduct_when=lambda response: False, ban="9/hour for 1 day")
    def back() -> str:
        return "fine"

    client = app.test_client()
    client.get("/settle")
    client.get("/back")
    assert [(charge.kind, charge.cost) for charge in settled] == [("rate", -1), ("rate", -1)]


def test_reset_lifts_a_ban(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=WrappingStore(buckets), bans="3/hour for 1 day")
    client = stocked(app, limiter)
    statuses(client, "/", 4)
    with app.app_context():
        limiter.reset("127.0.0.1")
    assert statuses(client, "/", 4) == [200, 429, 429, 429]


def test_reset_current_touches_no_ban(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets, bans="3/hour for 1 day")

    @app.get("/")
    @limiter.limit("1/minute", ban="3/hour for 1 day")
    def index() -> str:
        if "forgive" in request.args:
            limiter.reset_current()
        return "fine"

    @app.get("/reset")
    @limiter.limit("9/minute", scope="reset")
    def reset() -> str:
        limiter.reset_current()
        return "fine"

    client = app.test_client()
    assert statuses(client, "/?forgive=1", 9) == [200] * 9
    assert statuses(client, "/", 4) == [200, 429, 429, 429]
    assert client.get("/reset").status_code == 429
