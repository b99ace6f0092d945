"""Requests that run at the same time."""

from __future__ import annotations

from typing import Any

from flask.testing import FlaskClient


def at_once(client: FlaskClient, deep: int, path: str = "/") -> list[int]:
    """Return the statuses of so many requests that run at the same time."""
    response: Any = client.get(path, query_string={"deep": deep})
    return list(response.json) if response.status_code == 200 else [response.status_code]
