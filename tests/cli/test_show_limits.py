"""``show``: the limits of buckets that only keys, or a function, tell."""

from __future__ import annotations

import re
from threading import Thread
from typing import Any

import pytest
from flask import Blueprint, Flask, g, has_request_context, request

from flask_bucket import AtOnce, Limit, Limiter, Rule
from tests.cli.conftest import Said, get, run_in


def test_a_bucket_that_no_rule_names_is_shown_with_what_is_known(app: Flask) -> None:
    earlier, now = Flask("shop"), Flask("shop")
    for deploy, limit in ((earlier, "5/hour"), (now, "7/day")):
        deploy.config.update(app.config)
        Limiter(deploy, application_limits=limit)
    get(earlier, "/", 2)
    (bucket,) = run_in(now)("show", "203.0.113.7", "--json").data["buckets"]
    assert (bucket["name"], bucket["tokens"], bucket["limit"]) == ("per-hour", 3, None)
    said = run_in(now)("show", "203.0.113.7").out
    assert "per-hour of no rule" in said
    assert "No rule of the application has this limit:" in said


def test_the_limit_of_a_call_by_hand_is_known(app: Flask) -> None:
    limiter = Limiter(app, name="mail")
    with app.app_context():
        limiter.consume("5/hour", "alice", 2)
    (bucket,) = run_in(app)("show", "alice", "--json").data["buckets"]
    assert (bucket["limit"], bucket["tokens"], bucket["capacity"]) == ("5/hour", 3, 5)
    assert "5/hour" in run_in(app)("top").out


def test_limits_that_a_function_returned_are_shown_with_their_numbers(app: Flask) -> None:
    plans = iter(["10/minute", "2 per 15 minutes burst 9", "10/minute"])
    limiter = Limiter(app, name="plans")
    app.add_url_rule("/plan", "plan", limiter.limit(lambda: next(plans))(lambda: ""))
    get(app, "/plan", 3)
    run = run_in(app)
    buckets = run("show", "203.0.113.7", "--limiter", "plans", "--json").data["buckets"]
    shown = {b["limit"]: (b["capacity"], b["tokens"], b["from_function"]) for b in buckets}
    assert shown == {"10/minute": (10, 8, True), "2 per 15 minutes burst 9": (9, 8, True)}
    rows = run("show", "203.0.113.7", "--limiter", "plans").out.splitlines()[1:]
    assert all(row.startswith("plan  ") for row in rows)
    assert "10/minute from lambda in line" in rows[0]


def test_a_named_limit_from_the_configuration_is_known(app: Flask) -> None:
    app.config["SEARCHES"] = "7/hour"
    limiter = Limiter(app, name="named")
    limited = limiter.limit(lambda: app.config["SEARCHES"], name="searches")
    app.add_url_rule("/named", "named", limited(lambda: ""))
    get(app, "/named")
    run = run_in(app)
    (bucket,) = run("show", "203.0.113.7", "--limiter", "named", "--json").data["buckets"]
    assert (bucket["limit"], bucket["capacity"], bucket["tokens"]) == ("7/hour", 7, 6)


def plans(app: Flask, **options: Any) -> Limiter:
    """Limit a blueprint by the plan of the customer, which only a request knows."""

    def limit_of_the_plan() -> str:
        return {"acme": "20/hour burst 100", "bob": "1/hour burst 5"}[g.customer]

    limiter = Limiter(app, name="plans")
    api = Blueprint("api", __name__, url_prefix="/api")

    @api.before_request
    def check_key() -> None:
        g.customer = request.headers["X-API-Key"]

    def customer() -> str:
        return str(g.customer)

    limiter.shared_limit(limit_of_the_plan, "api", key_func=customer, **options)(api)
    api.add_url_rule("/items", "items", lambda: "")
    app.register_blueprint(api)
    return limiter


def show_plan(app: Flask, customer: str, *arguments: str) -> Said:
    assert app.test_client().get("/api/items", headers={"X-API-Key": customer}).status_code == 200
    return run_in(app)("show", customer, "--limiter", "plans", *arguments)


def test_a_named_limit_that_needs_a_request_is_shown_as_each_client_has_it(app: Flask) -> None:
    plans(app, name="plan")
    (bucket,) = show_plan(app, "bob", "--json").data["buckets"]
    assert (bucket["name"], bucket["limit"]) == ("plan", "1/hour burst 5")
    assert (bucket["tokens"], bucket["capacity"]) == (4, 5)
    assert 3_590 < bucket["next_in"] <= 3_600
    assert (bucket["from_function"], bucket["function"]) == (True, "limit_of_the_plan")
    said = show_plan(app, "acme").out
    assert "20/hour burst 100 from limit_of_the_plan" in said
    assert "?" not in said
    top = run_in(app)("top", "--limiter", "plans").out
    assert "1/hour burst 5 from limit_of_the_plan" in top
    assert "20/hour burst 100 from limit_of_the_plan" in top


def test_a_limit_given_a_name_by_its_function_is_known(app: Flask) -> None:
    limiter = Limiter(app, name="own")
    limited = limiter.limit(lambda: Limit(g.capacity, 1, 60, name="plan"))

    @app.before_request
    def choose() -> None:
        g.capacity = 9

    app.add_url_rule("/own", "own", limited(lambda: ""))
    get(app, "/own", 2)
    (bucket,) = run_in(app)("show", "203.0.113.7", "--limiter", "own", "--json").data["buckets"]
    assert (bucket["limit"], bucket["tokens"]) == ("1/minute burst 9", 7)


def test_a_client_on_a_new_plan_is_shown_with_the_new_limit(app: Flask) -> None:
    plan = ["20/hour burst 100"]
    limiter = Limiter(app, name="moved")
    limited = limiter.limit(lambda: plan[0] if has_request_context() else "9/day", name="plan")
    app.add_url_rule("/moved", "moved", limited(lambda: ""))
    get(app, "/moved")
    plan[0] = "3/minute"
    get(app, "/moved")
    (bucket,) = run_in(app)("show", "203.0.113.7", "--limiter", "moved", "--json").data["buckets"]
    assert (bucket["limit"], bucket["tokens"], bucket["capacity"]) == ("3/minute", 2, 3)


def test_a_refused_request_leaves_the_limit_known(app: Flask) -> None:
    plans(app, name="plan")
    for _ in range(5):
        app.test_client().get("/api/items", headers={"X-API-Key": "bob"})
    refused = app.test_client().get("/api/items", headers={"X-API-Key": "bob"})
    assert refused.status_code == 429
    (bucket,) = run_in(app)("show", "bob", "--limiter", "plans", "--json").data["buckets"]
    assert (bucket["limit"], bucket["tokens"]) == ("1/hour burst 5", 0)


def test_a_limit_that_is_leased_is_known(app: Flask) -> None:
    app.config["BUCKET_WORKERS"] = 1
    limiter = Limiter(app, name="hot")
    limited = limiter.limit(lambda: g.limit, name="hot", lease=10)

    @app.before_request
    def choose() -> None:
        g.limit = "100/minute burst 400"

    app.add_url_rule("/hot", "hot", limited(lambda: ""))
    get(app, "/hot", 9)
    buckets = run_in(app)("show", "203.0.113.7", "--limiter", "hot", "--json").data["buckets"]
    assert [bucket["limit"] for bucket in buckets] == ["100/minute burst 400"]


def test_a_limit_that_a_rule_says_is_shown_as_the_rule_says_it(app: Flask) -> None:
    """Also where a function returned another one under this name in an earlier deploy."""
    earlier, now = Flask("shop"), Flask("shop")
    for deploy, limit in ((earlier, lambda: "5/hour"), (now, "7/hour")):
        deploy.config.update(app.config)
        limiter = Limiter(deploy)
        deploy.add_url_rule("/", "view", limiter.limit(limit, name="plan", scope="x")(lambda: ""))
        get(deploy, "/")
    (bucket,) = run_in(now)("show", "203.0.113.7", "--json").data["buckets"]
    assert (bucket["limit"], bucket["from_function"]) == ("7/hour", False)


def test_named_limits_at_once_of_a_function_are_not_known(app: Flask) -> None:
    limiter = Limiter(app, name="slots")
    limited = limiter.limit(lambda: AtOnce(g.most), name="jobs")
    seen: list[Said] = []

    def look() -> None:
        seen.append(run_in(app)("show", "203.0.113.7", "--limiter", "slots"))
        seen.append(run_in(app)("show", "203.0.113.7", "--limiter", "slots", "--json"))

    def view() -> str:
        thread = Thread(target=look)  # where there is no request
        thread.start()
        thread.join()
        return ""

    @app.before_request
    def choose() -> None:
        g.most = 3

    app.add_url_rule("/slots", "slots", limited(view))
    get(app, "/slots")
    assert re.search(r"slots +jobs from lambda in line \d+ of \S+ +\? +\? +\? +\?", seen[0].out)
    assert seen[1].data["buckets"][0]["tokens"] is None


def test_a_limit_without_a_name_is_shown_with_its_function_and_its_numbers(app: Flask) -> None:
    plans(app)
    (bucket,) = show_plan(app, "acme", "--json").data["buckets"]
    assert (bucket["limit"], bucket["capacity"]) == ("20/hour burst 100", 100)
    assert (bucket["from_function"], bucket["function"]) == (True, "limit_of_the_plan")


def test_a_second_limit_under_the_name_of_a_function_is_known_too(app: Flask) -> None:
    limiter = Limiter(app, name="two")
    limited = limiter.limit(lambda: [g.limit, "9/day"], name="plan", scope="two")

    @app.before_request
    def choose() -> None:
        g.limit = "7/hour"

    app.add_url_rule("/two", "two", limited(lambda: ""))
    get(app, "/two")
    shown = run_in(app)("show", "203.0.113.7", "--limiter", "two", "--json").data["buckets"]
    assert [(b["name"], b["from_function"]) for b in shown] == [("plan", True), ("plan-2", True)]


def limit_of_all() -> str:
    return "7/hour"


@pytest.mark.parametrize("length", [30, 90, 200])
def test_the_limits_of_a_long_endpoint_are_known(app: Flask, length: int) -> None:
    Limiter(app, name="long", default_limits=["5/day", limit_of_all])
    app.add_url_rule("/long", "e" * length, lambda: "")
    get(app, "/long")
    shown = run_in(app)("show", "203.0.113.7", "--limiter", "long", "--json").data["buckets"]
    found = {(bucket["limit"], bucket["function"]) for bucket in shown}
    assert found == {("5/day", None), ("7/hour", "limit_of_all")}


def test_the_limits_of_requests_without_a_route_are_known(app: Flask) -> None:
    Limiter(app, name="un", application_limits=[Rule("5/day", per_method=True)])
    app.test_client().put("/nowhere", environ_base={"REMOTE_ADDR": "203.0.113.7"})
    (bucket,) = run_in(app)("show", "203.0.113.7", "--limiter", "un", "--json").data["buckets"]
    assert bucket["limit"] == "5/day"


def test_a_bucket_of_an_earlier_deploy_is_no_functions(app: Flask) -> None:
    limiter = plans(app, name="plan")
    with app.app_context():
        limiter.consume("5/day", "bob", scope="api")
    shown = show_plan(app, "bob", "--json").data["buckets"]
    assert {b["name"]: b["from_function"] for b in shown} == {"plan": True, "per-day": False}
