"""Receivers of signals that raise: the request fails, and the limits go on."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from flask_bucket import (
    Limiter,
    Rule,
    client_banned,
    limit_exceeded,
    limit_low,
)
from tests.ext.conftest import CountingStore, answer, statuses


def fail(sender: Flask, **about: Any) -> None:
    raise RuntimeError("the mail server is away")


@pytest.fixture
def banning(app: Flask, buckets: CountingStore) -> None:
    """An application with a limit of two, and a ban after two refusals."""
    Limiter(
        app,
        redis=buckets,
        default_limits=Rule("2/minute", low=0.5),
        bans="2/hour for 1 hour",
    )
    app.get("/")(answer())


@pytest.mark.usefixtures("banning")
@pytest.mark.parametrize(
    ("signal", "expected"),
    [
        (limit_exceeded, [200, 200, 500, 500, 500]),
        (limit_low, [500, 200, 429, 429, 429]),
        (client_banned, [200, 200, 429, 500, 429]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_receiver_that_raises_is_a_500_and_the_next_requests_are_decided_as_ever(
    app: Flask, client: FlaskClient, signal: Any, expected: list[int]
) -> None:
    with signal.connected_to(fail, app):
        assert statuses(client, "/", 5) == expected
    refusal = client.get("/")
    assert (refusal.status_code, refusal.headers["Retry-After"]) == (429, "3600")
