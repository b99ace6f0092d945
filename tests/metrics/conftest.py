"""An application that is measured."""

from __future__ import annotations

from typing import Any

from flask import Flask
from prometheus_client import CollectorRegistry

from flask_bucket import Limiter
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

    def value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0

    def labels(self) -> set[str]:
        return {
            value
            for family in self.registry.collect()
            for sample in family.samples
            for value in sample.labels.values()
        }


def make_app(**options: Any) -> tuple[Flask, Limiter]:
    app = Flask(__name__)
    return app, Limiter(app, **options)
