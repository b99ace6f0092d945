"""The style of draft-ietf-httpapi-ratelimit-headers-11."""

from __future__ import annotations

from typing import Any, cast

import http_sf
import pytest
from flask import Flask, Response

from flask_bucket import AtOnce, Limiter, Rule
from flask_bucket.stores.base import WrappingStore
from tests.ext.conftest import Clock, CountingStore, answer, statuses
from tests.ext.headers.conftest import styled, x_headers


def test_the_ietf_style_is_as_the_draft_has_it(buckets: CountingStore) -> None:
    app, limiter, client = styled(buckets, "ietf")
    app.get("/")(limiter.limit("5/second burst 20")(answer()))
    response = client.get("/")
    assert response.headers["RateLimit-Policy"] == '"per-second";q=20;w=4'
    assert response.headers["RateLimit"] == '"per-second";r=19;t=4'
    assert x_headers(response) == [None] * 3


def test_t_is_the_wait_when_refused(buckets: CountingStore, clock: Clock) -> None:
    app, limiter, client = styled(buckets, "ietf")
    app.get("/")(limiter.limit("2/minute")(answer()))
    assert client.get("/").headers["RateLimit"] == '"per-minute";r=1;t=30'
    assert client.get("/").headers["RateLimit"] == '"per-minute";r=0;t=1'
    clock.advance(10)
    refused = client.get("/")
    assert refused.headers["RateLimit"] == '"per-minute";r=0;t=20'
    assert refused.headers["Retry-After"] == "20"


def test_t_is_left_out_when_waiting_is_in_vain(buckets: CountingStore) -> None:
    app, limiter, client = styled(buckets, "ietf")
    app.get("/")(limiter.limit("5/minute", cost=6)(answer()))
    assert client.get("/").headers["RateLimit"] == '"per-minute";r=5'


def items(field: str) -> list[tuple[Any, dict[str, Any]]]:
    """Parse a structured field that is a list, and return its items with their parameters."""
    return cast("list[Any]", http_sf.parse(field.encode(), tltype="list"))


def test_every_enforced_limit_is_a_policy_the_binding_one_first(buckets: CountingStore) -> None:
    app, limiter, client = styled(buckets, "ietf")

    @app.get("/")
    @limiter.limit("9/minute")
    @limiter.limit("2/hour")
    @limiter.limit("1/day", dry_run=True)
    @limiter.limit("8/minute", scope="shared")
    def view() -> str:
        return "fine"

    response = client.get("/")
    policies = items(response.headers["RateLimit-Policy"])
    states = items(response.headers["RateLimit"])
    names = [str(name) for name, _ in policies]
    assert names == ["per-hour", "per-minute", "per-minute-2"]
    assert [str(name) for name, _ in states] == names
    assert [parameters["q"] for _, parameters in policies] == [2, 8, 9]
    assert [parameters["r"] for _, parameters in states] == [1, 7, 8]


def named_policies(response: Any) -> dict[int, str]:
    """Return the names of the policies that a response tells, by their quotas."""
    told = items(response.headers["RateLimit-Policy"])
    return {parameters["q"]: str(name) for name, parameters in told}


def test_a_policy_keeps_its_name_whichever_binds_or_is_remembered(buckets: CountingStore) -> None:
    app, limiter, client = styled(buckets, "ietf")
    inner = Rule("5/minute", scope="inner")
    app.get("/")(limiter.limit("3/minute")(limiter.limit(inner)(answer())))
    app.add_url_rule("/other", "other", limiter.limit(inner)(answer()))
    assert named_policies(client.get("/")) == {3: "per-minute-2", 5: "per-minute"}
    statuses(client, "/other", 3)
    assert named_policies(client.get("/")) == {3: "per-minute-2", 5: "per-minute"}
    for _ in range(2):
        assert named_policies(client.get("/"))[5] == "per-minute"
    with app.app_context():
        limiter.reset()
    statuses(client, "/", 3)
    for _ in range(2):
        assert named_policies(client.get("/"))[3] == "per-minute-2"


def test_a_remembered_refusal_lists_the_same_policies(clock: Clock) -> None:
    app = Flask("styled")
    app.config["BUCKET_HEADERS"] = "ietf"
    limiter = Limiter(app, redis=WrappingStore(CountingStore(clock)))
    app.get("/")(limiter.limit("1000/minute; 40/hour")(answer()))
    client = app.test_client()
    for _ in range(44):
        response = client.get("/")
        assert list(named_policies(response).items()) == [(40, "per-hour"), (1000, "per-minute")]
    assert response.status_code == 429
    assert [str(name) for name, _ in items(response.headers["RateLimit"])] == ["per-hour"]


def test_a_refusal_lists_the_limits_that_were_charged_before_it(buckets: CountingStore) -> None:
    app = Flask("styled")
    app.config.update(BUCKET_HEADERS="ietf", BUCKET_ERROR_FORMAT="problem")
    limiter = Limiter(app, redis=buckets, application_limits="9/minute")
    app.get("/")(limiter.limit("1/minute")(answer()))
    client = app.test_client()
    for _ in range(2):
        response = client.get("/")
        assert list(named_policies(response).items()) == [(1, "per-minute-2"), (9, "per-minute")]
    problem: Any = response.json
    assert problem["violated-policies"] == ["per-minute-2"]


def test_the_policies_of_all_limiters_are_listed(clock: Clock) -> None:
    app = Flask("styled")
    app.config.update(BUCKET_HEADERS="ietf", BUCKET_ERROR_FORMAT="problem")
    one, two = (Limiter(app, redis=CountingStore(clock), name=name) for name in ("one", "two"))
    app.get("/")(one.limit("5/minute")(two.limit("3/minute")(answer())))
    client = app.test_client()
    for _ in range(4):
        response = client.get("/")
        assert list(named_policies(response).items()) == [(3, "per-minute-2"), (5, "per-minute")]
    problem: Any = response.json
    assert problem["violated-policies"] == ["per-minute-2"]


@pytest.mark.parametrize("full", [1, 2])
def test_a_policy_on_requests_at_once_keeps_its_name(buckets: CountingStore, full: int) -> None:
    app = Flask("styled")
    app.config.update(BUCKET_HEADERS="ietf", BUCKET_ERROR_FORMAT="problem")
    limiter, client = Limiter(app, redis=buckets), app.test_client()
    inner, outer = (Rule(AtOnce(slots), scope=f"{slots}") for slots in (1, 2))
    app.get("/")(limiter.limit("9/day")(limiter.limit(outer)(limiter.limit(inner)(answer()))))
    held = {1: inner, 2: outer}[full]
    app.add_url_rule("/held", "held", limiter.limit(held)(lambda: Response(iter(["a", "b"]))))
    names = {9: "per-day", 1: "at-once", 2: "at-once-2"}
    assert named_policies(client.get("/")) == names
    holding = [client.get("/held") for _ in range(full)]
    response = client.get("/")
    assert (response.status_code, named_policies(response)) == (429, names)
    problem: Any = response.json
    assert problem["violated-policies"] == [names[full]]
    for each in holding:
        each.close()


def test_a_limit_of_a_block_has_no_name_of_the_view_s(buckets: CountingStore) -> None:
    app, limiter, client = styled(buckets, "ietf")

    @app.get("/")
    @limiter.limit("5/minute")
    def view() -> str:
        with limiter.limit("3/minute", scope="block"):
            return "fine"

    for _ in range(2):
        assert named_policies(client.get("/")) == {5: "per-minute", 3: "per-minute-2"}


def test_a_limit_that_is_charged_twice_is_one_policy(buckets: CountingStore) -> None:
    rule = Rule("9/minute", scope="s")
    app, limiter, client = styled(buckets, "ietf")

    @app.get("/")
    @limiter.limit(rule)
    def view() -> str:
        with limiter.limit(rule):
            return "fine"

    assert client.get("/").headers["RateLimit"] == '"per-minute";r=7;t=47'


def test_the_draft_s_number_names_a_style(buckets: CountingStore) -> None:
    app, limiter, client = styled(buckets, "ietf-11")
    app.get("/")(limiter.limit("5/second burst 20")(answer()))
    assert client.get("/").headers["RateLimit-Policy"] == '"per-second";q=20;w=4'


@pytest.mark.parametrize(
    ("limit", "name"),
    [("5/second", None), ("100 per 15 minutes", None), ("3/600 ms", None), ("1/day", "a.b_c-9")],
)
def test_the_ietf_fields_are_structured_fields(
    buckets: CountingStore, limit: str, name: str | None
) -> None:
    app, limiter, client = styled(buckets, "x-ratelimit", "ietf")
    app.get("/")(limiter.limit(limit, name=name)(limiter.limit(limit, name=name)(answer())))
    for response in (client.get("/"), *(client.get("/") for _ in range(3))):
        (policy, parameters), _ = items(response.headers["RateLimit-Policy"])
        (state, rest), _ = items(response.headers["RateLimit"])
        assert isinstance(policy, str)
        assert policy == state
        assert set(parameters) == {"q", "w"}
        assert set(rest) <= {"r", "t"}
        assert all(type(v) is int and v >= 0 for v in (*parameters.values(), *rest.values()))
        assert x_headers(response)[0] == str(parameters["q"])
        assert x_headers(response)[1] == str(rest["r"])
