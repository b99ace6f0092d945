"""An application that is measured."""

from __future__ import annotations

from typing import Any

from flask import Flask
from prometheus_client import CollectorRegistry

from flask_bucket import Limiter, MemoryStore
from flask_bucket.metrics.prometheus import PrometheusMetrics

ADDRESS = "203.0.113.77"


class Measured:
    """An application, and what is measured of it."""

    def __init__(self, app: Flask) -> None:
        self.app = app
        self.registry = CollectorRegistry()
        self.metrics = PrometheusMetrics(app, registry=self.registry)

    def get(self, path: str, times: int = 1) -> list[int]:
        client = self.app.test_client()
        environ = {"REMOTE_ADDR": ADDRESS}
        return [client.get(path, environ_base=environ).status_code for _ in range(times)]

    def decisions(self, limit: str, endpoint: str, outcome: str, limiter: str = "bucket") -> float:
        return self.value(
            "flask_bucket_decisions_total",
            limiter=limiter,
            limit=limit,
            endpoint=endpoint,
            outcome=outcome,
        )

    def bans(self, endpoint: str = "index") -> float | None:
        """Return how many bans have begun, or None if they are not counted yet."""
        labels = {"limiter": "bucket", "ban": "ban", "endpoint": endpoint}
        return self.registry.get_sample_value("flask_bucket_bans_total", labels)

    def store_calls(self) -> float:
        return self.value("flask_bucket_store_seconds_count", limiter="bucket", operation="take")

    def lease_tokens(self, what: str) -> float:
        return self.value(
            "flask_bucket_lease_tokens_total", limiter="bucket", limit="per-second", what=what
        )

    def value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0

    def labels(self) -> set[str]:
        return {
            value
            for family in self.registry.collect()
            for sample in family.samples
            for value in sample.labels.values()
        }


def limited(limit: str, redis: Any = None, bans: Any = None, **options: Any) -> Measured:
    """Measure an application whose view, index, has a limit. By default its time stands still."""
    app, limiter = make_app(redis=redis or MemoryStore(lambda: 0), bans=bans)
    app.add_url_rule("/", "index", limiter.limit(limit, **options)(lambda: ""))
    return Measured(app)


def leased(url: str) -> Measured:
    """Measure the only worker of an application whose limit is leased."""
    app = Flask(__name__)
    app.config.update(BUCKET_WORKERS=1, BUCKET_LEASE=10, BUCKET_TIMEOUT=5)
    Limiter(app, redis=url, application_limits="1000/second burst 4000")
    return Measured(app)


def make_app(**options: Any) -> tuple[Flask, Limiter]:
    app = Flask(__name__)
    return app, Limiter(app, **options)
