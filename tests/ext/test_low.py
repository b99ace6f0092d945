"""The signal ``limit_low``: once each time that a bucket falls low."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask, request
from flask.testing import FlaskClient

from flask_bucket import ConfigError, Limiter, Outcome, Rule, limit_low
from flask_bucket.stores.base import WrappingStore
from tests.ext.conftest import Clock, CountingStore, answer, statuses

#: 80 % of ten tokens, of which one comes back in six seconds.
TOLD = Rule("10/minute", low=0.8)


@pytest.fixture
def sent(app: Flask) -> Iterator[list[int]]:
    """The tokens remaining in each bucket that was reported."""
    found: list[int] = []

    def note(sender: Flask, limiter: Limiter, outcome: Outcome) -> None:
        found.append(outcome.remaining)

    with limit_low.connected_to(note, app):
        yield found


def limited(app: Flask, buckets: CountingStore, rule: Any = TOLD) -> FlaskClient:
    """Return a client of a worker of its own. Its view says what a request really cost."""
    limiter = Limiter(app, redis=buckets)

    def view() -> str:
        if real := request.args.get("real"):
            limiter.settle(int(real))
        return "fine"

    app.add_url_rule("/", "v", limiter.limit(rule)(view))
    return app.test_client()


def test_a_bucket_that_falls_low_is_reported_once(
    app: Flask, buckets: CountingStore, sent: list[int]
) -> None:
    client = limited(app, buckets)
    statuses(client, "/", 7)
    assert sent == []
    statuses(client, "/", 5)
    assert sent == [2]


def test_no_further_call_is_made(app: Flask, buckets: CountingStore, sent: list[int]) -> None:
    statuses(limited(app, buckets), "/", 9)
    assert buckets.calls == ["take"] * 9
    assert sent == [2]


def test_a_bucket_that_stays_near_the_mark_is_reported_once(
    app: Flask, buckets: CountingStore, sent: list[int], clock: Clock
) -> None:
    client = limited(app, buckets)
    statuses(client, "/", 8)
    for _ in range(10):
        clock.advance(6)
        assert statuses(client, "/", 1) == [200]
    assert sent == [2]


def test_a_bucket_that_has_recovered_is_reported_again(
    app: Flask, buckets: CountingStore, sent: list[int], clock: Clock
) -> None:
    client = limited(app, buckets)
    statuses(client, "/", 10)
    clock.advance(36)  # six tokens: less than half of the part is used
    statuses(client, "/", 6)
    assert sent == [2, 2]


def test_a_cost_that_skips_the_mark_is_reported(
    app: Flask, buckets: CountingStore, sent: list[int]
) -> None:
    statuses(limited(app, buckets, Rule("10/minute", low=0.8, cost=5)), "/", 3)
    assert sent == [0]


def test_a_refused_request_reports_nothing(
    app: Flask, buckets: CountingStore, sent: list[int]
) -> None:
    statuses(limited(app, buckets, Rule("10/minute", low=0.1, cost=11)), "/", 3)
    assert sent == []


def test_one_of_several_workers_reports(
    app: Flask, buckets: CountingStore, sent: list[int]
) -> None:
    clients = [limited(app, buckets)]
    other = Flask(app.name)
    clients.append(limited(other, buckets))
    with limit_low.connected_to(lambda *_, outcome, **__: sent.append(-outcome.remaining), other):
        for n in range(10):
            statuses(clients[n % 2], "/", 1)
    assert sent == [-2]


def test_a_settlement_that_takes_more_is_reported(
    app: Flask, buckets: CountingStore, sent: list[int]
) -> None:
    client = limited(app, buckets)
    client.get("/?real=9")
    client.get("/")
    assert sent == [1]


def test_a_charge_reports_what_settlements_took_beside_each_other(
    app: Flask, buckets: CountingStore, sent: list[int]
) -> None:
    limiter = Limiter(app, redis=buckets)

    def view() -> str:
        limiter.settle(4)
        if "nested" in request.args:
            app.test_client().get("/")  # settled before this request is
        return "fine"

    app.add_url_rule("/", "v", limiter.limit(TOLD)(view))
    client = app.test_client()
    client.get("/?nested")
    assert sent == []  # each of them saw a part: 10 - 4, and 10 - 1 - 4
    client.get("/")
    assert sent == [1]


def test_every_bucket_is_reported_for_itself(
    app: Flask, buckets: CountingStore, sent: list[int]
) -> None:
    rules = [Rule("10/minute", low=0.5), "20/hour", Rule("8/day", low=0.25)]
    client = limited(app, buckets, rules)
    statuses(client, "/", 4)
    statuses(client, "/", 4, environ_base={"REMOTE_ADDR": "192.0.2.1"})
    assert sent == [6, 6]
    statuses(client, "/", 1)
    assert sent == [6, 6, 5]


def test_the_receiver_hears_which_bucket_it_is(app: Flask, buckets: CountingStore) -> None:
    heard: list[Any] = []
    receive: Callable[..., None] = lambda sender, **sent: heard.append((sender, sent))  # noqa: E731
    limiter = Limiter(app, redis=buckets)
    app.add_url_rule("/", "v", limiter.limit("2/minute", low=0.5)(answer()))
    with limit_low.connected_to(receive, app):
        app.test_client().get("/")
    ((sender, told),) = heard
    assert (sender, told["limiter"]) == (app, limiter)
    assert told["outcome"].key == "bucket:{127.0.0.1}:v:per-minute"


@pytest.mark.parametrize("low", [0, -0.5, 80, "0.8", True])
def test_a_part_that_cannot_be_is_an_error(low: Any) -> None:
    with pytest.raises(ConfigError, match="low is the part of the capacity to be used up"):
        Rule("5/second", low=low)


@pytest.mark.parametrize("order", ["A" * 60, "AB" * 40, "A" * 44 + "B" * 40, "AAB" * 25])
def test_a_leased_bucket_is_reported_by_the_one_call_that_takes_it_past_the_mark(
    buckets: CountingStore, order: str
) -> None:
    told: list[int] = []

    def note(sender: Flask, limiter: Limiter, outcome: Outcome) -> None:
        told.append(outcome.remaining)

    rule = Rule("10/second burst 100", lease=10, low=0.5, key_func=lambda: "all")
    workers = {}
    for name in "AB":
        app = Flask(name)
        app.config["BUCKET_WORKERS"] = 2
        # A store of its own class: one in this process would be used without leases.
        Limiter(app, redis=WrappingStore(buckets), application_limits=rule)
        app.get("/")(answer())
        limit_low.connect(note, app)
        workers[name] = app.test_client()
    for name in order:
        calls = len(buckets.calls)
        workers[name].get("/")
        if told:
            assert len(buckets.calls) == calls + 1, "it was reported on a call"
            break
    (remaining,) = told
    assert 30 < remaining <= 50
    for name in order:
        workers[name].get("/")
    assert told == [remaining]
