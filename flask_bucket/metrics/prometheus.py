"""Metrics for Prometheus; the extra ``prometheus``."""

from __future__ import annotations

import os

from flask import Flask, Response

from .measured import measure

try:
    from prometheus_client import (
        REGISTRY,
        CollectorRegistry,
        Counter,
        Gauge,
        Histogram,
        generate_latest,
    )
    from prometheus_client.exposition import CONTENT_TYPE_LATEST
    from prometheus_client.multiprocess import MultiProcessCollector
except ImportError as error:
    raise ImportError(
        "Metrics for Prometheus need prometheus_client: pip install 'flask-bucket[prometheus]'."
    ) from error

#: Seconds: from a unix socket nearby to the longest timeout that anyone should set.
_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


class PrometheusMetrics:
    """Counts what an application's Limiters decide, for Prometheus.

    One object may serve several applications. Labels say which limit of which endpoint, never
    which client.

    :param app: the application, with its Limiters set up; or call :meth:`init_app` later.
    :param registry: where the metrics are registered, once in each registry.
    :raises ConfigError: if the application has no Limiter yet.

    >>> from flask import Flask
    >>> from flask_bucket import Limiter
    >>> app = Flask(__name__)
    >>> limiter = Limiter(app, application_limits="100/minute")
    >>> metrics = PrometheusMetrics(app, registry=CollectorRegistry())
    >>> app.add_url_rule("/metrics", view_func=limiter.exempt(metrics.view))
    """

    def __init__(self, app: Flask | None = None, *, registry: CollectorRegistry = REGISTRY) -> None:
        self._registry = registry
        self._decisions = Counter(
            "flask_bucket_decisions",
            "Charges by what was decided.",
            ("limiter", "limit", "endpoint", "outcome"),
            registry=registry,
        )
        self._bans = Counter(
            "flask_bucket_bans",
            "Bans that began.",
            ("limiter", "ban", "endpoint"),
            registry=registry,
        )
        self._near = Counter(
            "flask_bucket_near_limit",
            "Allowed charges that left less than 20% of the bucket.",
            ("limiter", "limit", "endpoint"),
            registry=registry,
        )
        self._seconds = Histogram(
            "flask_bucket_store_seconds",
            "How long the store took.",
            ("limiter", "operation"),
            buckets=_BUCKETS,
            registry=registry,
        )
        self._leased = Counter(
            "flask_bucket_lease_tokens",
            "Tokens leased from the store, spent without a call, and returned.",
            ("limiter", "limit", "what"),
            registry=registry,
        )
        self._slots = Gauge(
            "flask_bucket_slots_in_use",
            "Slots that requests hold, of limits on requests at once.",
            ("limiter", "limit"),
            multiprocess_mode="livesum",
            registry=registry,
        )
        self._breaker = Gauge(
            "flask_bucket_breaker_open",
            "Processes for which the store is out of reach.",
            ("limiter",),
            multiprocess_mode="livesum",
            registry=registry,
        )
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Measure the Limiters that an application has by now.

        :raises ConfigError: if it has none.
        """
        measure(app, self)

    def view(self) -> Response:
        """Answer Prometheus; in multi-process mode, for all workers together.

        Do not let everybody read it, and keep it free of limits: ``limiter.exempt(metrics.view)``.
        """
        registry = self._registry
        if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # prometheus-client's
        return Response(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)

    def decided(self, limiter: str, limit: str, endpoint: str, outcome: str) -> None:
        self._decisions.labels(limiter, limit, endpoint, outcome).inc()

    def banned(self, limiter: str, ban: str, endpoint: str, bans: int) -> None:
        self._bans.labels(limiter, ban, endpoint).inc(bans)

    def near_limit(self, limiter: str, limit: str, endpoint: str) -> None:
        self._near.labels(limiter, limit, endpoint).inc()

    def timed(self, limiter: str, operation: str, seconds: float) -> None:
        self._seconds.labels(limiter, operation).observe(seconds)

    def leased(self, limiter: str, limit: str, what: str, tokens: int) -> None:
        self._leased.labels(limiter, limit, what).inc(tokens)

    def slots(self, limiter: str, limit: str, change: int) -> None:
        self._slots.labels(limiter, limit).inc(change)

    def breaker(self, limiter: str, is_open: bool) -> None:
        self._breaker.labels(limiter).set(is_open)
