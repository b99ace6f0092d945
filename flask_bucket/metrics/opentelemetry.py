"""Metrics for OpenTelemetry; the extra ``opentelemetry``."""

from __future__ import annotations

from flask import Flask

from .measured import measure

try:
    from opentelemetry.metrics import MeterProvider, get_meter
except ImportError as error:
    raise ImportError(
        "Metrics for OpenTelemetry need opentelemetry-api: "
        "pip install 'flask-bucket[opentelemetry]'."
    ) from error

_PREFIX = "flask_bucket."


class OpenTelemetryMetrics:
    """Counts what an application's Limiters decide, for OpenTelemetry.

    One object may serve several applications. Attributes say which limit of which endpoint, never
    which client.

    :param app: the application, with its Limiters set up; or call :meth:`init_app` later.
    :param meter_provider: by default the global one.
    :raises ConfigError: if the application has no Limiter yet.
    """

    def __init__(
        self, app: Flask | None = None, *, meter_provider: MeterProvider | None = None
    ) -> None:
        meter = get_meter("flask_bucket", meter_provider=meter_provider)
        self._decisions = meter.create_counter(
            "flask_bucket.decisions", "{charge}", "Charges by what was decided."
        )
        self._bans = meter.create_counter("flask_bucket.bans", "{ban}", "Bans that began.")
        self._near = meter.create_counter(
            "flask_bucket.near_limit",
            "{charge}",
            "Allowed charges that left less than 20% of the bucket.",
        )
        self._seconds = meter.create_histogram(
            "flask_bucket.store.duration", "s", "How long the store took."
        )
        self._leased = meter.create_counter(
            "flask_bucket.lease.tokens",
            "{token}",
            "Tokens leased from the store, spent without a call, and returned.",
        )
        self._slots = meter.create_up_down_counter(
            "flask_bucket.slots.in_use",
            "{slot}",
            "Slots that requests hold, of limits on requests at once.",
        )
        self._breakers = meter.create_up_down_counter(
            "flask_bucket.breaker.open", "{process}", "Processes without their store."
        )
        self._open: set[str] = set()
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Measure the Limiters that an application has by now.

        :raises ConfigError: if it has none.
        """
        measure(app, self)

    def decided(self, limiter: str, limit: str, endpoint: str, outcome: str) -> None:
        self._decisions.add(
            1, _attributes(limiter, limit, endpoint) | {_PREFIX + "outcome": outcome}
        )

    def banned(self, limiter: str, ban: str, endpoint: str, bans: int) -> None:
        named = {_PREFIX + "limiter": limiter, _PREFIX + "ban": ban}
        self._bans.add(bans, named | {_PREFIX + "endpoint": endpoint})

    def near_limit(self, limiter: str, limit: str, endpoint: str) -> None:
        self._near.add(1, _attributes(limiter, limit, endpoint))

    def timed(self, limiter: str, operation: str, seconds: float) -> None:
        self._seconds.record(
            seconds, {_PREFIX + "limiter": limiter, _PREFIX + "operation": operation}
        )

    def leased(self, limiter: str, limit: str, what: str, tokens: int) -> None:
        named = {_PREFIX + "limiter": limiter, _PREFIX + "limit": limit}
        self._leased.add(tokens, named | {_PREFIX + "what": what})

    def slots(self, limiter: str, limit: str, change: int) -> None:
        self._slots.add(change, {_PREFIX + "limiter": limiter, _PREFIX + "limit": limit})

    def breaker(self, limiter: str, is_open: bool) -> None:
        self._breakers.add(
            int(is_open) - int(limiter in self._open), {_PREFIX + "limiter": limiter}
        )
        (self._open.add if is_open else self._open.discard)(limiter)


def _attributes(limiter: str, limit: str, endpoint: str) -> dict[str, str]:
    return {
        _PREFIX + "limiter": limiter,
        _PREFIX + "limit": limit,
        _PREFIX + "endpoint": endpoint,
    }
