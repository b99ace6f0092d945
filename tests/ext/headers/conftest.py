"""Applications with a style of headers."""

from __future__ import annotations

from typing import Any

from flask import Flask
from flask.testing import FlaskClient

from flask_bucket import Limiter
from tests.conftest import START
from tests.ext.conftest import CountingStore

NOW = START // 1_000_000


def styled(buckets: CountingStore, *styles: str) -> tuple[Flask, Limiter, FlaskClient]:
    app = Flask("styled")
    app.config["BUCKET_HEADERS"] = styles
    return app, Limiter(app, redis=buckets), app.test_client()


def x_headers(response: Any) -> list[str | None]:
    names = ("Limit", "Remaining", "Reset")
    return [response.headers.get(f"X-RateLimit-{name}") for name in names]
