"""A limited view, and clients by their addresses."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from flask_bucket import Limiter
from tests.ext.conftest import answer


@pytest.fixture
def limited(app: Flask, limiter: Limiter, client: FlaskClient) -> FlaskClient:
    """A client of an application whose only view allows one request a minute."""
    app.add_url_rule("/", "v", limiter.limit("1/minute")(answer()))
    return client


def at(address: str | None) -> dict[str, Any]:
    return {"environ_overrides": {"REMOTE_ADDR": address}}
