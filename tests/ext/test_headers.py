"""The rate headers: of the binding limit, in both styles, on every limited response."""

from __future__ import annotations

from typing import Any, cast

import http_sf
import pytest
from flask import Flask, Response, make_response
from flask.testing import FlaskClient

from flask_bucket import AtOnce, Limiter, Rule
from flask_bucket.stores.base import WrappingStore
from tests.conftest import START
from tests.ext.conftest import Clock, CountingStore, answer, statuses

NOW = START // 1_000_000


def styled(buckets: CountingStore, *styles: str) -> tuple[Flask, Limiter, FlaskClient]:
    app = Flask("styled")
    app.config["BUCKET_HEADERS"] = styles
    return app, Limiter(app, redis=buckets), app.test_client()


def x_headers(response: Any) -> list[str | None]:
    names = ("Limit", "Remaining", "Reset")
    return [response.headers.get(f"X-RateLimit-{name}") for name in names]


def test_a_limited_response_tells_capacity_remaining_and_reset(
    app: Flask, limiter: Limiter, client: FlaskClient, clock: Clock
) -> None:
    app.get("/")(limiter.limit("5/second burst 20", cost=5)(answer()))
    assert x_headers(client.get("/")) == ["20", "15", str(NOW + 1)]
    assert x_headers(client.get("/")) == ["20", "10", str(NOW + 2)]
    clock.advance(100)
    assert x_headers(client.get("/")) == ["20", "15", str(NOW + 101)]


def test_reset_is_rounded_up_on_the_stores_clock(
    app: Flask, limiter: Limiter, client: FlaskClient, clock: Clock
) -> None:
    app.get("/")(limiter.limit("10/second")(answer()))
    clock.advance(0.25)
    assert x_headers(client.get("/"))[2] == str(NOW + 1)
    clock.advance(0.65)
    assert x_headers(client.get("/"))[2] == str(NOW + 1)
    assert x_headers(client.get("/"))[2] == str(NOW + 2)


def test_an_unlimited_response_has_none(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    app.get("/")(answer())
    assert x_headers(client.get("/")) == [None] * 3


def test_of_several_limits_the_one_with_the_fewest_remaining_is_told(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("100/hour; 5/second; 50/minute")(answer()))
    assert x_headers(client.get("/"))[:2] == ["5", "4"]


def test_of_a_refusal_the_longest_wait_is_told(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("1/second; 1/hour; 100/day")(answer()))
    client.get("/")
    refused = client.get("/")
    assert x_headers(refused) == ["1", "0", str(NOW + 3600)]
    assert refused.headers["Retry-After"] == "3600"


def test_over_two_points_the_tighter_limit_is_told(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets, application_limits=["3/minute"])
    app.add_url_rule("/wide", "wide", limiter.limit("9/minute")(answer()))
    app.add_url_rule("/tight", "tight", limiter.limit("1/minute")(answer()))
    client = app.test_client()
    assert x_headers(client.get("/wide"))[:2] == ["3", "2"]
    assert x_headers(client.get("/tight"))[:2] == ["1", "0"]
    assert x_headers(client.get("/tight"))[:2] == ["1", "0"]
    assert x_headers(client.get("/wide"))[:2] == ["3", "0"]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_refusals_carry_the_headers_for_every_method(
    app: Flask, limiter: Limiter, client: FlaskClient, method: str
) -> None:
    app.get("/")(limiter.limit("1/minute")(answer()))
    client.get("/")
    refused = client.open("/", method=method)
    assert x_headers(refused)[:2] == ["1", "0"]
    assert refused.headers["Retry-After"] == "60"
    assert refused.headers["Cache-Control"] == "no-store"
    assert (refused.data == b"") == (method == "HEAD")


def test_error_responses_carry_the_headers(app: Flask, buckets: CountingStore) -> None:
    Limiter(app, redis=buckets, application_limits=["9/minute"])
    app.get("/")(answer())
    app.add_url_rule("/crash", "crash", lambda: str(1 / 0))
    client = app.test_client()
    responses = [client.get("/none"), client.post("/"), client.get("/crash")]
    assert [r.status_code for r in responses] == [404, 405, 500]
    assert [x_headers(r)[1] for r in responses] == ["8", "7", "6"]


def fails_once(app: Flask) -> None:
    """Let a hook fail after the Limiters' own have run. Flask then answers with a 500."""

    @app.after_request
    def fail(response: Response) -> Response:
        assert response.status_code == 500, "not a good answer"
        return response


def test_a_500_for_a_hook_that_failed_later_carries_the_headers(
    app: Flask, buckets: CountingStore
) -> None:
    fails_once(app)
    limiter = Limiter(app, redis=buckets)
    app.get("/")(limiter.limit("9/minute")(answer()))
    response = app.test_client().get("/")
    assert (response.status_code, x_headers(response)[:2]) == (500, ["9", "8"])


@pytest.mark.parametrize("tighter", ["first", "second"])
def test_such_a_500_tells_the_tighter_of_two_limiters_limits(app: Flask, tighter: str) -> None:
    fails_once(app)
    for name in ("first", "second"):
        Limiter(app, name=name, default_limits=["2/minute" if name == tighter else "9/minute"])
    app.get("/")(answer())
    response = app.test_client().get("/")
    assert (response.status_code, x_headers(response)[:2]) == (500, ["2", "1"])


def test_redirects_and_streams_carry_the_headers(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    limit = limiter.limit("9/minute")
    app.add_url_rule("/moved", "moved", limit(lambda: Response(status=302)))
    app.add_url_rule("/stream", "stream", limit(lambda: Response(iter("ab"))))
    for path in ("/moved", "/stream"):
        response = client.get(path)
        assert x_headers(response)[:2] == ["9", "8"]
        response.close()


def test_a_slash_redirect_is_an_unmatched_url(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets, application_limits=["9/minute"])
    app.add_url_rule("/dir/", "v", limiter.limit("1/minute")(answer()))
    response = app.test_client().get("/dir")
    assert (response.status_code, x_headers(response)[1]) == (308, "8")


def test_a_views_own_retry_after_is_never_changed(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    def busy() -> Response:
        return Response("busy", 503, {"Retry-After": "120", "Cache-Control": "max-age=5"})

    app.get("/")(limiter.limit("1/minute")(busy))
    response = client.get("/")
    assert response.headers["Retry-After"] == "120"
    assert response.headers["Cache-Control"] == "max-age=5"


def test_an_error_handlers_own_retry_after_is_never_changed(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("1/minute")(answer()))
    app.register_error_handler(429, lambda error: Response("", 429, {"Retry-After": "7"}))
    client.get("/")
    refused = client.get("/")
    assert refused.headers.getlist("Retry-After") == ["7"]
    assert refused.headers.getlist("Cache-Control") == ["no-store"]


def test_an_allowed_response_says_nothing_about_caches(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("1/minute")(answer()))
    response = client.get("/")
    assert "Cache-Control" not in response.headers
    assert "Retry-After" not in response.headers


@pytest.mark.parametrize(
    ("limit", "cost", "wait"),
    [("2/second", 1, "1"), ("1/second", 1, "1"), ("10 per 15 s", 1, "2"), ("3 per 10 s", 2, "4")],
)
def test_retry_after_is_in_whole_seconds_rounded_up(
    app: Flask, limiter: Limiter, client: FlaskClient, limit: str, cost: int, wait: str
) -> None:
    app.get("/")(limiter.limit(limit, cost=cost)(answer()))
    responses = [client.get("/") for _ in range(12)]
    refused = next(r for r in responses if r.status_code == 429)
    assert refused.headers["Retry-After"] == wait


def test_a_cost_that_can_never_be_paid_has_no_retry_after(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("5/minute", cost=6)(answer()))
    refused = client.get("/")
    assert refused.status_code == 429
    assert "Retry-After" not in refused.headers
    assert x_headers(refused)[:2] == ["5", "5"], "and takes nothing"
    assert refused.json == {"error": "Too Many Requests", "retryAfterMs": None}


# The style of draft-ietf-httpapi-ratelimit-headers-11.


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


def test_both_styles_can_be_sent(buckets: CountingStore) -> None:
    app, limiter, client = styled(buckets, "x-ratelimit", "ietf")
    app.get("/")(limiter.limit("5/second")(answer()))
    headers = client.get("/").headers
    assert {"X-RateLimit-Limit", "RateLimit", "RateLimit-Policy"} <= set(headers.keys())


def test_no_style_sends_no_rate_headers_but_retry_after(buckets: CountingStore) -> None:
    app, limiter, client = styled(buckets)
    app.get("/")(limiter.limit("1/minute")(answer()))
    client.get("/")
    refused = client.get("/")
    assert [name for name, _ in refused.headers if "rate" in name.lower()] == []
    assert refused.headers["Retry-After"] == "60"


def test_a_view_that_sets_a_rate_header_itself_is_overruled(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    @app.get("/")
    @limiter.limit("9/minute")
    def view() -> Response:
        response = make_response("fine")
        response.headers["X-RateLimit-Limit"] = "upstream"
        return response

    assert client.get("/").headers.getlist("X-RateLimit-Limit") == ["9"]
    assert statuses(client, "/", 1) == [200]


# Names of one's own.


def named(buckets: CountingStore, **names: str) -> FlaskClient:
    app = Flask("named")
    app.config["BUCKET_HEADERS"] = names
    limiter = Limiter(app, redis=buckets)
    app.get("/")(limiter.limit("1/minute")(answer()))
    return app.test_client()


def test_headers_may_have_other_names(buckets: CountingStore) -> None:
    headers = named(buckets, limit="X-Max", remaining="X-Left", reset="X-Full-At").get("/").headers
    assert [headers[name] for name in ("X-Max", "X-Left", "X-Full-At")] == ["1", "0", str(NOW + 60)]
    assert "X-RateLimit" not in str(headers)


def test_headers_that_are_not_named_keep_their_names(buckets: CountingStore) -> None:
    headers = named(buckets, limit="X-Max").get("/").headers
    assert (headers["X-Max"], headers["X-RateLimit-Remaining"]) == ("1", "0")
    assert "X-RateLimit-Limit" not in headers


def test_the_wait_may_have_a_name_beside_retry_after(buckets: CountingStore) -> None:
    client = named(buckets, retry_after="X-Wait")
    assert "X-Wait" not in client.get("/").headers
    refused = client.get("/").headers
    assert (refused["X-Wait"], refused["Retry-After"]) == ("60", "60")
