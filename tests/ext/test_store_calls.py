"""How often a request asks the store: the promise is one round trip for typical applications."""

from __future__ import annotations

import fractions
import sys
from typing import Any
from unittest.mock import patch

import pytest
from flask import Flask, Response, abort, request
from flask.testing import FlaskClient

import flask_bucket
from flask_bucket import Limiter
from flask_bucket.keys import Spelling
from flask_bucket.plans import Planner
from flask_bucket.stores.redis import links, pool
from tests.ext.conftest import CountingStore, answer, statuses
from tests.servers import Server


def calls(buckets: CountingStore, client: FlaskClient, path: str = "/") -> list[str]:
    buckets.calls.clear()
    client.get(path)
    return list(buckets.calls)


def test_no_limit_costs_no_call(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.get("/")(answer())
    assert calls(buckets, client) == []


def test_one_limit_costs_one_call_also_refused(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.get("/")(limiter.limit("1/minute")(answer()))
    assert calls(buckets, client) == ["take"]
    assert calls(buckets, client) == ["take"]


def test_three_stacked_limits_cost_one_call(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    @limiter.limit("1000/day")
    @limiter.limit("100/hour", key_func=lambda: "everyone")
    @limiter.limit("5/second", dry_run=True)
    def view() -> str:
        return "fine"

    assert calls(buckets, client) == ["take"]
    assert len(buckets.keys) == 3


def test_application_and_default_limits_cost_one_call(app: Flask, buckets: CountingStore) -> None:
    Limiter(app, redis=buckets, application_limits=["9/second"], default_limits=["5/second"])
    app.get("/")(answer())
    assert calls(buckets, app.test_client()) == ["take"]


def test_application_and_route_limit_cost_two_calls_also_refused(
    app: Flask, buckets: CountingStore
) -> None:
    limiter = Limiter(app, redis=buckets, application_limits=["9/second"])
    app.get("/")(limiter.limit("1/minute")(answer()))
    client = app.test_client()
    assert calls(buckets, client) == ["take", "take"]
    assert calls(buckets, client) == ["take", "take"]


def test_deduct_when_costs_a_call_after_the_view_only_to_give_back(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    @limiter.limit("9/minute; 99/hour", deduct_when=lambda response: response.status_code == 401)
    @limiter.limit("9/second", deduct_when=lambda response: response.status_code == 401)
    def view() -> str:
        return abort(401) if "wrong" in request.args else "welcome"

    assert calls(buckets, client, "/?wrong") == ["take"]
    assert calls(buckets, client) == ["take", "settle"]


def test_settling_costs_one_call_unless_the_cost_was_right(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    @limiter.limit("900/minute; 9000/hour", cost=5)
    def view() -> str:
        limiter.settle(1)
        limiter.settle(int(request.args["cost"]))
        return "fine"

    assert calls(buckets, client, "/?cost=7") == ["take", "settle"]
    assert calls(buckets, client, "/?cost=5") == ["take"]


def test_settling_and_giving_back_are_one_call(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets, application_limits=["99/second"])

    def failed(response: Response) -> bool:
        return response.status_code != 200

    @app.get("/")
    @limiter.limit("9/minute", deduct_when=failed)
    @limiter.limit("900/hour")
    def view() -> str:
        limiter.settle(50)
        return "fine"

    assert calls(buckets, app.test_client()) == ["take", "take", "settle"]


@pytest.mark.parametrize(
    "free", ["exempt", "filtered", "disabled", "keyless", "exempt when", "no rule"]
)
def test_free_requests_cost_no_call(app: Flask, buckets: CountingStore, free: str) -> None:
    limiter = Limiter(app, redis=buckets, default_limits=["5/second"])
    view = answer()
    if free == "exempt":
        limiter.exempt(view)
    elif free == "filtered":
        limiter.request_filter(lambda: True)
    elif free == "disabled":
        limiter.enabled = False
    elif free == "keyless":
        view = limiter.limit("1/minute", key_func=lambda: None)(view)
    elif free == "exempt when":
        view = limiter.limit("1/minute", exempt_when=lambda: True)(view)
    else:
        view = limiter.limit(lambda: None)(view)
    app.get("/")(view)
    assert calls(buckets, app.test_client()) == []


def test_a_key_function_is_asked_once_for_all_limits_at_one_point(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    asked: list[str] = []

    def key() -> str:
        asked.append("key")
        return "client"

    @app.get("/")
    @limiter.limit("9/minute", key_func=key)
    @limiter.limit("9/second; 9/hour", key_func=key)
    def view() -> str:
        return "fine"

    client.get("/")
    assert asked == ["key"]


def test_a_hundred_endpoints_cost_no_more_calls_and_are_planned_once(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    for n in range(100):
        app.add_url_rule(f"/{n}", f"v{n}", limiter.limit(f"{n + 2}/minute")(answer()))
    with patch.object(Planner, "_make", autospec=True, side_effect=Planner._make) as planned:
        for _ in range(2):
            for n in range(100):
                assert statuses(client, f"/{n}", 1) == [200]
    assert buckets.calls == ["take"] * 200
    assert planned.call_count == 100


def test_unknown_methods_and_urls_are_planned_once(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets, application_limits=["900/second"])
    app.register_error_handler(404, limiter.limit("900/second")(lambda error: ("no", 404)))
    client = app.test_client()
    with patch.object(Planner, "_bind", autospec=True, side_effect=Planner._bind) as bound:
        for n in range(20):
            assert statuses(client, f"/{n}", 1, method=f"VERB{n}") == [404]
    assert bound.call_count == 2


# What a request does not do again: it was done where the limit was written, or for the first one.


def modules_entered(client: FlaskClient) -> set[str]:
    """Send a request, and return the files of all functions that were called for it."""
    entered: set[str] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            entered.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        client.get("/")
    finally:
        sys.setprofile(None)
    return entered


@pytest.mark.parametrize("times", [1, 3], ids=["allowed", "refused"])
def test_a_request_counts_in_no_fractions_and_reads_no_limit(
    buckets: CountingStore, times: int
) -> None:
    app = Flask("fast")
    app.config["BUCKET_HEADERS"] = ("x-ratelimit", "ietf")
    limiter = Limiter(app, redis=buckets, application_limits="2/minute")
    app.get("/")(limiter.limit("10007 per 30 days; 9/second burst 20")(answer()))
    client = app.test_client()
    statuses(client, "/", times)
    entered = modules_entered(client)
    assert flask_bucket.extension.__file__ in entered
    assert fractions.__file__ not in entered
    assert flask_bucket.limits.__file__ not in entered


def test_a_settled_request_counts_in_no_fractions(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    limit = limiter.limit("9/minute", deduct_when=lambda response: False)
    app.get("/")(limit(answer()))
    client.get("/")
    assert fractions.__file__ not in modules_entered(client)


def test_a_client_s_second_request_writes_and_packs_nothing_anew(
    app: Flask, server: Server
) -> None:
    limiter = Limiter(app, redis=server.url)
    app.get("/")(limiter.limit("1000/second")(answer()))
    client = app.test_client()
    client.get("/")
    with (
        patch.object(Spelling, "begin", side_effect=AssertionError),
        patch.object(pool, "packed", side_effect=AssertionError),
        patch.object(links, "packed", side_effect=AssertionError),
    ):
        assert client.get("/").headers["X-RateLimit-Limit"] == "1000"
    app.extensions["flask_bucket"]["bucket"].store.close()
