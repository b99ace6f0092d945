"""How often a request asks the store: the promise is one round trip for typical applications."""

from __future__ import annotations

import pytest
from flask import Flask, Response, abort, request
from flask.testing import FlaskClient

from flask_bucket import Limiter, Rule
from tests.ext.conftest import CountingStore, answer, statuses


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


def planned(limits: str) -> tuple[Rule, list[str]]:
    """Return a rule, and a list of the endpoints for which it was planned."""
    endpoints: list[str] = []

    def scope(endpoint: str) -> str:
        endpoints.append(endpoint)
        return f"scope of {endpoint}"

    return Rule(limits, scope=scope), endpoints


def test_a_hundred_endpoints_cost_no_more_calls_and_are_planned_once(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    rule, endpoints = planned("9/minute")
    for n in range(100):
        app.add_url_rule(f"/{n}", f"v{n}", limiter.limit(rule)(answer()))
    for _ in range(2):
        for n in range(100):
            assert statuses(client, f"/{n}", 1) == [200]
    assert buckets.calls == ["take"] * 200
    assert endpoints == [f"v{n}" for n in range(100)]


def test_unknown_methods_and_urls_are_planned_once(app: Flask, buckets: CountingStore) -> None:
    rule, endpoints = planned("900/second")
    Limiter(app, redis=buckets, application_limits=[rule])
    client = app.test_client()
    for n in range(20):
        assert statuses(client, f"/{n}", 1, method=f"VERB{n}") == [404]
    assert endpoints == [""]
