"""Limits on requests at once: how many, beside what, and what a refusal says."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Semaphore
from typing import Any

import pytest
from flask import (
    Blueprint,
    Flask,
    Response,
    request,
)
from flask.testing import FlaskClient
from flask.views import MethodView

from flask_bucket import (
    AtOnce,
    ConfigError,
    Limiter,
    Rule,
    limit_exceeded,
    limit_low,
)
from flask_bucket.testing import use_clock
from tests.ext.conftest import Clock, CountingStore, answer, in_use, nested, statuses, words


def at_once(client: FlaskClient, deep: int, path: str = "/") -> list[int]:
    """Return the statuses of so many requests that run at the same time."""
    response: Any = client.get(path, query_string={"deep": deep})
    return list(response.json) if response.status_code == 200 else [response.status_code]


# How many.


def test_no_more_requests_run_at_once_than_the_limit_says(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.get("/")(limiter.limit("3 at once")(nested(app)))
    assert at_once(client, 3) == [200, 200, 200]
    assert at_once(client, 4) == [200, 200, 200, 429]
    assert in_use(buckets) == 0


def test_requests_one_after_another_are_all_allowed(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.get("/")(limiter.limit("1 at once")(answer()))
    assert statuses(client, "/", 5) == [200] * 5
    assert buckets.calls == ["take", "settle"] * 5


def test_a_value_does_what_its_text_does(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    app.get("/")(limiter.limit(AtOnce(2))(nested(app)))
    assert at_once(client, 3) == [200, 200, 429]


def test_each_client_has_slots_of_its_own(app: Flask, limiter: Limiter) -> None:
    def view() -> str:
        other = app.test_client().get("/leaf", headers={"X-Key": request.args["other"]})
        return str(other.status_code)

    rule = Rule("1 at once", key_func=lambda: request.headers["X-Key"], scope="both")
    app.get("/")(limiter.limit(rule)(view))
    app.add_url_rule("/leaf", "leaf", limiter.limit(rule)(answer()))
    client = app.test_client()
    assert client.get("/?other=b", headers={"X-Key": "a"}).text == "200"
    assert client.get("/?other=a", headers={"X-Key": "a"}).text == "429"


@pytest.mark.parametrize("where", ["application_limits", "default_limits"])
def test_settings_limit_requests_at_once(app: Flask, buckets: CountingStore, where: Any) -> None:
    options: dict[str, Any] = {where: "2 at once"}
    Limiter(app, redis=buckets, **options)
    app.get("/")(nested(app))
    assert at_once(app.test_client(), 3) == [200, 200, 429]


def test_a_method_of_a_class_is_limited_at_once(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    class Export(MethodView):
        get = staticmethod(limiter.limit("1 at once")(nested(app)))

    app.add_url_rule("/", view_func=Export.as_view("export"))
    assert at_once(client, 2) == [200, 429]


def test_a_function_returns_how_many(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    app.get("/")(limiter.limit(lambda: request.args.get("plan", "2 at once"))(nested(app)))
    assert at_once(client, 3) == [200, 200, 429]


@pytest.mark.parametrize(
    "options",
    [{"cost": lambda: 2}, {"deduct_when": lambda response: False}, {"lease": 0.5}, {"low": 0.5}],
    ids=list,
)
def test_a_function_returns_no_slots_beside_options_of_tokens(
    app: Flask, limiter: Limiter, client: FlaskClient, options: Any
) -> None:
    app.testing = True
    app.get("/")(limiter.limit(lambda: request.args["plan"], **options)(answer()))
    assert client.get("/?plan=5/second").status_code == 200
    for plan in ("2 at once", "5/second; 2 at once"):
        if plan == "2 at once" or "lease" in options:
            with pytest.raises(ConfigError, match=next(iter(options))):
                client.get("/", query_string={"plan": plan})
        else:
            assert client.get("/", query_string={"plan": plan}).status_code == 200


def test_a_slot_and_a_bucket_of_one_name_are_two(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    rule = Rule(["9/minute", AtOnce(1)], name="same", scope="s")
    app.get("/")(limiter.limit(rule)(answer()))
    assert statuses(client, "/", 2) == [200, 200]


def test_a_name_moves_between_a_rate_and_a_slot(app: Flask, buckets: CountingStore) -> None:
    for n, rule in enumerate(("5/minute", "5 at once", "5/minute")):
        other = Flask("other")
        Limiter(other, redis=buckets, application_limits=Rule(rule, name="n"))
        assert other.test_client().get("/").status_code == 404, n
    assert [key.rpartition(":")[2] for key in buckets.keys] == ["n", "@n", "n"]


# Beside rates.


def test_a_rate_beside_it_is_charged_in_the_same_call(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.get("/")(limiter.limit("10/second; 3 at once")(answer()))
    client.get("/")
    assert buckets.calls == ["take", "settle"]


def test_a_refusal_for_want_of_a_slot_takes_no_token(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("5/minute; 1 at once")(nested(app)))
    assert at_once(client, 2) == [200, 429]
    assert client.get("/").headers["X-RateLimit-Remaining"] == "3"


def test_a_refusal_for_want_of_a_token_holds_no_slot(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.get("/")(limiter.limit("1/minute; 9 at once")(answer()))
    assert statuses(client, "/", 3) == [200, 429, 429]
    assert in_use(buckets) == 0


def test_a_slot_taken_earlier_is_given_back_by_a_later_refusal_in_its_call(
    app: Flask, buckets: CountingStore
) -> None:
    limiter = Limiter(app, redis=buckets, application_limits="5 at once")
    app.get("/")(limiter.limit("1/minute")(answer()))
    client = app.test_client()
    assert statuses(client, "/", 2) == [200, 429]
    assert buckets.calls == ["take", "take", "settle", "take", "take"]
    assert in_use(buckets) == 0


def test_what_is_settled_and_the_slot_go_back_in_one_call(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    @limiter.limit("100/minute; 3 at once", cost=10)
    def view() -> str:
        limiter.settle(25)
        return "fine"

    assert client.get("/").headers["X-RateLimit-Remaining"] == "75"
    assert buckets.calls == ["take", "settle"]
    assert in_use(buckets) == 0


def test_deduct_when_concerns_the_tokens_alone(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    rule = Rule("2/minute; 3 at once", deduct_when=lambda response: False)
    app.get("/")(limiter.limit(rule)(answer()))
    assert statuses(client, "/", 4) == [200] * 4
    assert in_use(buckets) == 0


def test_only_the_rate_beside_it_is_reported_as_low(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("9/minute; 1 at once", low=0.5)(answer()))
    told: list[str] = []

    def note(sender: Flask, outcome: Any, **_: Any) -> None:
        told.append(outcome.limit.name)

    with limit_low.connected_to(note, app):
        statuses(client, "/", 9)
    assert told == ["per-minute"]


def test_a_request_that_forgets_its_buckets_keeps_its_slot(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    @limiter.limit("2/minute; 1 at once")
    def view() -> str:
        limiter.reset_current()
        return str(in_use(buckets))

    assert [client.get("/").text for _ in range(4)] == ["1"] * 4


def test_two_limits_that_share_slots_hold_one_for_a_request(
    app: Flask, buckets: CountingStore
) -> None:
    rule = Rule("1 at once", scope="s")
    limiter = Limiter(app, redis=buckets, application_limits=rule)
    app.get("/")(limiter.limit(rule)(nested(app)))
    assert at_once(app.test_client(), 2) == [200, 429]
    assert in_use(buckets) == 0


def test_two_limiters_of_one_application_hold_slots_of_their_own(
    app: Flask, buckets: CountingStore
) -> None:
    Limiter(app, redis=buckets, application_limits="9 at once")
    Limiter(app, redis=buckets, name="second", application_limits="1 at once")
    app.get("/")(nested(app))
    assert at_once(app.test_client(), 2) == [200, 429]
    assert in_use(buckets) == 0


# What a refusal says.


@pytest.fixture
def refusal(app: Flask, limiter: Limiter, client: FlaskClient) -> Any:
    """A refusal for want of a slot, half a second after the slot was taken."""
    clock: Clock = limiter._registry.redis._clock  # type: ignore[attr-defined]  # the store's

    @app.get("/")
    @limiter.limit("1 at once", holds=20)
    def view() -> str:
        clock.advance(0.5)
        app.extensions["refusal"] = app.test_client().get("/")
        return "fine"

    app.extensions["allowed"] = client.get("/")
    return app.extensions["refusal"]


def test_a_refused_client_may_ask_again_after_a_second(refusal: Any, clock: Clock) -> None:
    assert refusal.status_code == 429
    assert refusal.json == {"error": "Too Many Requests", "retryAfterMs": 1000}
    headers = refusal.headers
    assert headers["Retry-After"] == "1"
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-RateLimit-Limit"] == "1"
    assert headers["X-RateLimit-Remaining"] == "0"
    assert headers["X-RateLimit-Reset"] == str(clock.now // 1_000_000 + 20)


def test_a_response_that_slots_alone_allowed_has_no_rate_headers(app: Flask, refusal: Any) -> None:
    allowed = app.extensions["allowed"]
    assert allowed.status_code == 200
    assert not [name for name, _ in allowed.headers if "RateLimit" in name]


def test_style_ietf_names_the_unit(app: Flask) -> None:
    app.config["BUCKET_HEADERS"] = ["ietf"]
    limiter = Limiter(app)
    app.add_url_rule("/", "both", limiter.limit("10/second; 5 at once")(answer()))

    @app.get("/one")
    @limiter.limit("1 at once")
    def view() -> str:
        app.extensions["refusal"] = app.test_client().get("/one")
        return "fine"

    headers = app.test_client().get("/").headers
    assert headers["RateLimit-Policy"] == (
        '"per-second";q=10;w=1, "at-once";q=5;qu="concurrent-requests"'
    )
    assert headers["RateLimit"] == '"per-second";r=9;t=1, "at-once";r=4'
    app.test_client().get("/one")
    headers = app.extensions["refusal"].headers
    assert headers["RateLimit-Policy"] == '"at-once";q=1;qu="concurrent-requests"'
    assert headers["RateLimit"] == '"at-once";r=0;t=1'


def test_the_rate_is_told_while_slots_are_left(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("100/second; 2 at once")(answer()))
    assert client.get("/").headers["X-RateLimit-Limit"] == "100"


# Options.


def test_a_dry_run_reports_and_refuses_nothing(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.get("/")(limiter.limit("1 at once", dry_run=True)(nested(app)))
    told: list[Any] = []

    def note(sender: Flask, decision: Any, **_: Any) -> None:
        told.append(decision)

    with limit_exceeded.connected_to(note, app):
        assert at_once(client, 3) == [200] * 3
    assert len(told) == 2
    assert in_use(buckets) == 0


def test_an_exempt_request_holds_nothing(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    rule = Rule("1 at once", exempt_when=lambda: request.args.get("deep") == "1")
    app.get("/")(limiter.limit(rule)(nested(app)))
    assert at_once(client, 2) == [200, 200]
    assert at_once(client, 3) == [200, 429]


def test_only_the_methods_named_hold_slots(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    view = limiter.limit("1 at once", methods=["POST"])(nested(app))
    app.route("/", methods=["GET", "POST"])(view)
    assert at_once(client, 3) == [200] * 3


def test_each_method_has_slots_of_its_own(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.route("/", methods=["GET", "POST"])(
        limiter.limit("1 at once", per_method=True)(nested(app))
    )
    assert client.post("/?deep=2").json == [200, 200]
    assert client.post("/?deep=3").json == [200, 200, 429]


def test_on_breach_answers_a_refusal(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    def busy(decision: Any) -> Any:
        return f"busy: {decision.limit}", 429

    @app.get("/")
    @limiter.limit("1 at once", on_breach=busy)
    def view() -> str:
        return app.test_client().get("/").text

    assert client.get("/").text == "busy: 1 at once"


def test_a_key_of_none_holds_nothing(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    app.get("/")(limiter.limit("1 at once", key_func=lambda: None)(nested(app)))
    assert at_once(client, 3) == [200] * 3


@pytest.mark.parametrize("limit", ["5 at once", "5/second; 5 at once", AtOnce(5)])
def test_nobody_consumes_or_peeks_at_slots_by_hand(
    app: Flask, limiter: Limiter, limit: Any
) -> None:
    with app.app_context():
        for call in (limiter.consume, limiter.peek):
            with pytest.raises(ConfigError, match=r"is for requests: .* in a with statement"):
                call(limit, "alice")


def test_the_status_tells_of_the_slots_that_are_held(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.add_url_rule("/limits", "limits", limiter.status_view)

    @app.get("/")
    @limiter.limit("3 at once", holds=30)
    def view() -> Any:
        return app.test_client().get("/limits").json

    shown: Any = client.get("/").json
    (told,) = shown["buckets"]
    assert (told["name"], told["limit"], told["capacity"]) == ("at-once", "3 at once", 3)
    assert (told["remaining"], told["reset_after"]) == (2, 30)
    shown = client.get("/limits").json
    assert shown["buckets"] == []


def test_a_reset_frees_all_slots(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    @limiter.limit("1 at once")
    def view() -> Any:
        limiter.reset("127.0.0.1")
        return [in_use(buckets)]

    assert client.get("/").json == [0]


def test_slots_are_free_when_a_turned_clock_says_so(app: Flask) -> None:
    limiter = Limiter(app)
    app.get("/")(limiter.limit("1 at once", holds=60)(lambda: Response(words())))
    turned = use_clock(app)
    client = app.test_client()
    assert statuses(client, "/", 2) == [200, 429]
    turned.advance(60)
    assert statuses(client, "/", 1) == [200]


def test_the_current_decision_tells_of_the_slot(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    @app.get("/")
    @limiter.limit("3 at once")
    def view() -> Any:
        assert limiter.current is not None
        (outcome,) = limiter.current.outcomes
        return [outcome.kind, outcome.remaining, outcome.taken]

    assert client.get("/").json == ["slot", 2, 1]


# Bans.


def test_a_rule_s_ban_counts_the_refusals_of_its_slots(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    rule = Rule("1 at once", ban="2/hour for 1 day")
    app.add_url_rule("/", "view", limiter.limit(rule)(lambda: Response(words())))
    with client.get("/"):
        assert statuses(client, "/", 2) == [429, 429]
    refused = client.get("/")
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "86400")


def test_a_ban_of_the_limiter_counts_no_refusal_for_want_of_a_slot(
    app: Flask, buckets: CountingStore
) -> None:
    limiter = Limiter(app, redis=buckets, bans="1/hour for 1 day")
    app.add_url_rule("/", "view", limiter.limit("1 at once")(lambda: Response(words())))
    client = app.test_client()
    with client.get("/"):
        assert statuses(client, "/", 3) == [429] * 3
    assert client.get("/").data == b"one two"


def test_a_banned_client_holds_nothing(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets, bans="1/hour for 1 day", application_limits="5 at once")
    app.add_url_rule("/", "view", limiter.limit("1/hour; 3 at once")(answer()))
    assert statuses(app.test_client(), "/", 4) == [200, 429, 429, 429]
    assert in_use(buckets) == 0


# Other kinds of views.


def test_a_blueprint_s_requests_are_limited_at_once(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    blueprint = Blueprint("api", __name__)
    limiter.limit("1 at once")(blueprint)
    blueprint.get("/")(nested(app))
    app.register_blueprint(blueprint)
    assert at_once(client, 2) == [200, 429]
    assert in_use(buckets) == 0


def test_an_async_view_holds_a_slot_while_it_runs(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    @limiter.limit("2 at once")
    async def view() -> list[int]:
        with limiter.limit("1 at once", scope="block"):
            return [in_use(buckets)]

    assert client.get("/").json == [2]
    assert in_use(buckets) == 0


def test_of_requests_that_come_together_no_more_are_allowed_than_there_are_slots(
    app: Flask, limiter: Limiter, buckets: CountingStore
) -> None:
    came, answered = Barrier(10), Semaphore(0)

    @app.get("/")
    @limiter.limit("3 at once")
    def view() -> str:
        answered.acquire()
        return "fine"

    def ask() -> int:
        came.wait()
        status = app.test_client().get("/").status_code
        if status == 429:
            refused.append(status)
            if len(refused) == 7:
                answered.release(3)
        return status

    refused: list[int] = []
    with ThreadPoolExecutor(10) as pool:
        got = [pool.submit(ask) for _ in range(10)]
    assert sorted(future.result() for future in got) == [200] * 3 + [429] * 7
    assert in_use(buckets) == 0
