"""The metrics and their labels. No label says who a client is."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from typing import Any

import pytest
from flask import Flask
from prometheus_client import CollectorRegistry

from flask_bucket import ConfigError, Limit, Limiter, MemoryStore
from flask_bucket.metrics.measured import MOST_LIMITS
from flask_bucket.metrics.opentelemetry import OpenTelemetryMetrics
from flask_bucket.metrics.prometheus import PrometheusMetrics
from tests.metrics.conftest import ADDRESS, Measured, leased, limited, make_app
from tests.servers import Server


def test_decisions_are_counted_by_limit_endpoint_and_outcome() -> None:
    app, limiter = make_app(redis=MemoryStore(lambda: 0))

    @app.get("/search")
    @limiter.limit("3/minute; 9/hour")
    def search() -> str:
        return ""

    measured = Measured(app)
    assert measured.get("/search", 5) == [200, 200, 200, 429, 429]
    assert measured.decisions("per-minute", "search", "allowed") == 3
    assert measured.decisions("per-minute", "search", "refused") == 2
    assert measured.decisions("per-hour", "search", "allowed") == 3
    assert measured.decisions("per-hour", "search", "refused") == 0


def test_what_a_dry_run_would_refuse_is_counted_apart() -> None:
    measured = limited("1/hour", dry_run=True)
    assert measured.get("/", 3) == [200] * 3
    assert measured.decisions("per-hour", "index", "allowed") == 1
    assert measured.decisions("per-hour", "index", "shadow-refused") == 2
    assert measured.decisions("per-hour", "index", "refused") == 0


def test_bans_are_counted_when_they_begin_and_when_they_refuse() -> None:
    measured = limited("3/minute", bans="2/hour for 1 day")
    assert measured.get("/", 7) == [200] * 3 + [429] * 4
    assert measured.bans() == 1
    assert measured.decisions("per-minute", "index", "refused") == 4
    assert measured.decisions("ban", "index", "banned") == 2
    assert measured.decisions("ban", "index", "allowed") == 0


def test_bans_are_counted_from_0_so_that_their_increase_shows_the_first() -> None:
    measured = limited("1/minute", bans="1/hour for 1 day")
    counted = []
    for _ in range(3):
        measured.get("/")
        counted.append(measured.bans())
    assert counted == [0, 1, 1]


def test_bans_of_a_dry_run_are_counted_apart() -> None:
    measured = limited("1/minute", ban="1/hour for 1 day", dry_run=True)
    assert measured.get("/", 4) == [200] * 4
    assert not measured.bans()
    assert measured.decisions("ban", "index", "shadow-banned") == 2


def test_in_an_outage_no_ban_is_counted() -> None:
    app, _ = make_app(
        redis="redis://127.0.0.1:1", bans="1/hour for 1 day", application_limits="9/s"
    )
    measured = Measured(app)
    measured.get("/")
    assert measured.decisions("per-second", "", "degraded") == 1
    assert measured.decisions("ban", "", "degraded") == 0


def test_bans_from_the_cache_are_counted_apart(valkey: Server) -> None:
    measured = limited("1/minute", redis=valkey.url, bans="1/hour for 1 day")
    measured.get("/", 5)
    asked = measured.decisions("ban", "index", "banned")
    cached = measured.decisions("ban", "index", "banned-from-cache")
    assert (asked, cached) in {(0, 3), (1, 2)}  # a slow machine asks again after a second


def test_a_bucket_with_less_than_a_fifth_left_is_near_its_limit() -> None:
    measured = limited("10/hour")
    labels = {"limiter": "bucket", "limit": "per-hour", "endpoint": "index"}
    measured.get("/", 8)  # 2 of 10 are left
    assert measured.value("flask_bucket_near_limit_total", **labels) == 0
    measured.get("/", 3)
    assert measured.value("flask_bucket_near_limit_total", **labels) == 2


def test_requests_without_an_endpoint_and_charges_by_hand_are_counted() -> None:
    app, limiter = make_app(application_limits="9/hour")
    measured = Measured(app)
    measured.get("/nowhere")
    with app.app_context():
        limiter.consume("9/hour", ADDRESS)
    assert measured.decisions("per-hour", "", "allowed") == 2


def test_the_stores_time_is_measured_and_not_that_of_what_wraps_it(valkey: Server) -> None:
    app, _ = make_app(redis=valkey.url, application_limits="2/hour")
    measured = Measured(app)
    measured.get("/", 2)
    labels = {"limiter": "bucket", "operation": "take"}
    assert measured.store_calls() == 2
    assert 0 < measured.value("flask_bucket_store_seconds_sum", **labels) < 10


def test_refusals_from_the_cache_are_counted_apart(valkey: Server) -> None:
    app, _ = make_app(redis=valkey.url, application_limits="1/hour")
    measured = Measured(app)
    measured.get("/", 4)
    refused = measured.decisions("per-hour", "", "refused")
    cached = measured.decisions("per-hour", "", "refused-from-cache")
    assert (measured.decisions("per-hour", "", "allowed"), refused + cached) == (1, 3)
    assert measured.store_calls() == 1 + refused  # what the cache refused took no call


def test_an_outage_is_seen_by_its_decisions_and_by_the_breaker(own_server: Server) -> None:
    app, _ = make_app(redis=own_server.url, application_limits="9/hour")
    app.config["BUCKET_RECOVERY_INTERVAL"] = 0.01
    measured = Measured(app)
    measured.get("/")
    assert measured.value("flask_bucket_breaker_open", limiter="bucket") == 0
    own_server.kill()
    assert measured.get("/", 3) == [404] * 3
    assert measured.decisions("per-hour", "", "degraded") == 3
    assert measured.value("flask_bucket_breaker_open", limiter="bucket") == 1
    own_server.start()
    deadline = time.monotonic() + 10
    while measured.value("flask_bucket_breaker_open", limiter="bucket"):
        assert time.monotonic() < deadline
        measured.get("/")


def test_the_tokens_of_leases_are_counted(valkey: Server) -> None:
    measured = leased(valkey.url)
    measured.get("/", 40)
    spent = measured.lease_tokens("spent")
    assert spent == 40 - measured.store_calls()
    assert measured.lease_tokens("leased") >= spent > 30
    assert measured.lease_tokens("returned") == 0
    assert measured.decisions("per-second", "", "allowed") == 40


def test_tokens_that_a_worker_returns_as_it_ends_are_counted(valkey: Server) -> None:
    measured = leased(valkey.url)
    measured.get("/", 40)
    measured.app.extensions["flask_bucket"]["bucket"].store.close()
    unspent = measured.lease_tokens("leased") - measured.lease_tokens("spent")
    assert measured.lease_tokens("returned") == unspent > 0


def test_no_label_says_who_a_client_is() -> None:
    app, limiter = make_app(application_limits="2/hour", key_func=lambda: "alice")
    app.add_url_rule("/u/<name>", "user", limiter.limit("2/minute")(lambda name: ""))
    measured = Measured(app)
    measured.get("/u/bob", 3)
    assert not [label for label in measured.labels() if re.search(f"alice|bob|{ADDRESS}", label)]


def test_labels_are_bounded_however_many_limits_a_function_returns() -> None:
    app, limiter = make_app()
    names = iter(range(10_000))
    rule = limiter.limit(lambda: Limit(9, 1, name=f"n{next(names)}"))
    app.add_url_rule("/", "index", rule(lambda: ""))
    measured = Measured(app)
    measured.get("/", MOST_LIMITS + 50)
    assert measured.decisions("other", "index", "allowed") == 50
    assert len(measured.labels()) < MOST_LIMITS + 50


def test_each_limiter_is_measured_under_its_name() -> None:
    app, _ = make_app(application_limits="2/hour")
    Limiter(app, name="api", application_limits="9/hour")
    measured = Measured(app)
    measured.get("/", 3)
    assert measured.decisions("per-hour", "", "refused", limiter="bucket") == 1
    # Where the first refuses, the second is not asked.
    assert measured.decisions("per-hour", "", "allowed", limiter="api") == 2


def test_one_object_serves_several_applications() -> None:
    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry=registry)
    for _ in range(2):
        app, _limiter = make_app(application_limits="9/hour")
        metrics.init_app(app)
        app.test_client().get("/")
    labels = {"limiter": "bucket", "limit": "per-hour", "endpoint": "", "outcome": "allowed"}
    assert registry.get_sample_value("flask_bucket_decisions_total", labels) == 2


@pytest.mark.parametrize("kind", [PrometheusMetrics, OpenTelemetryMetrics])
def test_an_application_without_limiters_is_refused(kind: Any) -> None:
    options = {"registry": CollectorRegistry()} if kind is PrometheusMetrics else {}
    with pytest.raises(ConfigError, match="has no Limiter"):
        kind(Flask(__name__), **options)


@pytest.mark.parametrize(
    ("module", "needed", "extra"),
    [
        ("prometheus", "prometheus_client", "prometheus"),
        ("opentelemetry", "opentelemetry.metrics", "opentelemetry"),
    ],
)
def test_without_its_library_the_extra_is_named(module: str, needed: str, extra: str) -> None:
    script = f"import sys; sys.modules[{needed!r}] = None; import flask_bucket.metrics.{module}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert f"pip install 'flask-bucket[{extra}]'" in done.stderr.splitlines()[-1]


def test_the_package_itself_imports_neither() -> None:
    script = (
        "import sys, flask_bucket, flask_bucket.metrics, flask_bucket.cli\n"
        "heavy = {'prometheus_client', 'matplotlib', 'rich', 'pytest'}\n"
        "heavy |= {'flask_bucket.metrics.opentelemetry'}\n"  # redis-py imports the library
        "assert not heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
