"""OpenTelemetry is told the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from flask import Response
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from flask_bucket import MemoryStore
from flask_bucket.metrics.opentelemetry import OpenTelemetryMetrics
from tests.metrics.conftest import Measured, make_app
from tests.servers import Server


@pytest.fixture
def reader() -> Iterator[InMemoryMetricReader]:
    reader = InMemoryMetricReader()
    yield reader
    reader.shutdown()


def points(reader: InMemoryMetricReader, name: str) -> list[Any]:
    data = reader.get_metrics_data()
    return [
        point
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.data.data_points
    ]


def test_opentelemetry_is_told_the_same(reader: InMemoryMetricReader, own_server: Server) -> None:
    app, _ = make_app(redis=own_server.url, application_limits="2/hour")
    OpenTelemetryMetrics(app, meter_provider=MeterProvider([reader]))
    client = app.test_client()
    for _ in range(3):
        client.get("/")
    counted = {
        point.attributes["flask_bucket.outcome"].partition("-from")[0]: point.value
        for point in points(reader, "flask_bucket.decisions")
    }
    assert counted == {"allowed": 2, "refused": 1}
    (decision, *_) = points(reader, "flask_bucket.decisions")
    assert decision.attributes["flask_bucket.limit"] == "per-hour"
    (near,) = points(reader, "flask_bucket.near_limit")
    assert near.value == 1
    (duration,) = points(reader, "flask_bucket.store.duration")
    assert duration.count == 3
    assert points(reader, "flask_bucket.breaker.open")[0].value == 0
    own_server.kill()
    client.get("/", environ_base={"REMOTE_ADDR": "203.0.113.9"})
    assert points(reader, "flask_bucket.breaker.open")[0].value == 1


def test_slots_in_use_are_counted_up_and_down() -> None:
    app, limiter = make_app(redis=MemoryStore(lambda: 0))
    view = limiter.limit("2 at once")(lambda: Response(iter(["a", "b"])))
    app.add_url_rule("/", "view", view)
    measured = Measured(app)

    def in_use() -> float:
        name = "flask_bucket_slots_in_use"
        return measured.value(name, limiter="bucket", limit="at-once")

    seen, responses = [], []
    for _ in range(3):
        responses.append(app.test_client().get("/"))
        seen.append(in_use())
    for response in (*responses, *responses):
        response.close()
        seen.append(in_use())
    assert seen == [1, 2, 2, 1, 0, 0, 0, 0, 0]
    assert measured.decisions("at-once", "view", "refused") == 1
    labels = {"limiter": "bucket", "limit": "at-once", "endpoint": "view"}
    assert measured.value("flask_bucket_near_limit_total", **labels) == 0


def test_a_slot_that_a_later_refusal_gives_back_is_not_in_use() -> None:
    app, limiter = make_app(redis=MemoryStore(lambda: 0), application_limits="2 at once")
    app.add_url_rule("/", "view", limiter.limit("1/hour")(lambda: ""))
    measured = Measured(app)
    assert measured.get("/", 2) == [200, 429]
    assert measured.value("flask_bucket_slots_in_use", limiter="bucket", limit="at-once") == 0


def test_opentelemetry_is_told_of_slots_in_use(reader: InMemoryMetricReader) -> None:
    app, limiter = make_app(redis=MemoryStore(lambda: 0))
    app.add_url_rule("/", "view", limiter.limit("2 at once")(lambda: Response(iter(["a", "b"]))))
    OpenTelemetryMetrics(app, meter_provider=MeterProvider([reader]))
    response = app.test_client().get("/")
    assert points(reader, "flask_bucket.slots.in_use")[0].value == 1
    response.close()
    assert points(reader, "flask_bucket.slots.in_use")[0].value == 0
