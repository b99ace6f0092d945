"""``flask bucket limits``: every route with what holds for it, and what has nothing."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Blueprint, Flask, request
from flask.views import MethodView

from flask_bucket import Limiter, Rule, request_header
from tests.cli.conftest import Said, run_in


def busy_app(**config: Any) -> Flask:
    app = Flask(__name__)
    app.config.update(config)
    limiter = Limiter(app, default_limits="100/hour", application_limits="1000/day")
    api = Limiter(app, name="api")
    blueprint = Blueprint("shop", __name__, url_prefix="/shop")
    limiter.limit("50/minute")(blueprint)

    @app.get("/both")
    @limiter.limit("5/second", key_func=request_header("X-API-Key"), cost=lambda: 2)
    @api.limit("7/second", methods=["GET"], exempt_when=lambda: False)
    def both() -> str:
        return ""

    @app.get("/callable")
    @limiter.limit(lambda: "5/second")
    def by_function() -> str:
        return ""

    @app.route("/dry", methods=["GET", "PUT"])
    @limiter.limit("9/second", dry_run=True, scope="shared", per_method=True)
    def dry() -> str:
        return ""

    @blueprint.get("/cart")
    def cart() -> str:
        return ""

    @app.get("/plain")
    def plain() -> str:
        return ""

    @app.get("/healthz")
    @limiter.exempt
    def healthz() -> str:
        return ""

    class Item(MethodView):
        @limiter.limit("3/second")
        def post(self) -> str:
            return ""

        def get(self) -> str:
            return ""

    app.add_url_rule("/item", view_func=Item.as_view("item"))
    app.register_blueprint(blueprint)
    return app


def found(said: Said) -> dict[tuple[str, str], list[dict[str, Any]]]:
    assert said.code == 0
    return {(route["rule"], route["method"]): route["limits"] for route in said.data["routes"]}


def test_each_route_is_listed_with_what_holds_and_where_it_comes_from() -> None:
    limits = found(run_in(busy_app())("limits", "--json"))

    def brief(rule: str, method: str = "GET") -> list[tuple[str, str, str]]:
        return [(x["limiter"], x["limit"], x["source"]) for x in limits[rule, method]]

    application = ("bucket", "1000/day", "application")
    assert brief("/both") == [
        application,
        ("bucket", "5/second", "view"),
        ("api", "7/second", "view"),
    ]
    assert brief("/shop/cart") == [application, ("bucket", "50/minute", "blueprint")]
    assert brief("/plain") == [application, ("bucket", "100/hour", "default")]
    assert brief("/item", "POST") == [application, ("bucket", "3/second", "view")]
    assert brief("/item", "GET") == [application, ("bucket", "100/hour", "default")]
    assert brief("/healthz") == []
    assert brief("(no route)", "*") == [application]


def test_limits_of_urls_without_a_route_are_listed_whatever_their_method() -> None:
    app = Flask(__name__)
    rules = [Rule("9/day", methods=["GET"]), Rule("3/hour", methods=["POST"]), Rule("7/second")]
    Limiter(app, application_limits=rules)
    limits = found(run_in(app)("limits", "--json"))["(no route)", "*"]
    assert sorted(limit["limit"] for limit in limits) == ["3/hour", "7/second", "9/day"]


def test_a_limit_per_method_of_urls_without_a_route_is_listed_once() -> None:
    app = Flask(__name__)
    Limiter(app, application_limits=Rule("3/hour", per_method=True))
    (limit,) = found(run_in(app)("limits", "--json"))["(no route)", "*"]
    assert limit["conditions"] == ["per method"]


def test_keys_costs_and_conditions_are_told() -> None:
    limits = found(run_in(busy_app())("limits", "--json"))
    _, ours, other = limits["/both", "GET"]
    assert ours["key"] == "request_header('X-API-Key')"
    assert ours["cost"].startswith("lambda in line")
    assert other["conditions"][0] == "methods GET"
    assert other["conditions"][1].startswith("exempt when lambda in line")
    dry = limits["/dry", "PUT"][-1]
    assert dry["dry_run"] is True
    assert dry["conditions"] == ["per method", "shared as 'shared'"]


def test_a_limit_from_a_function_is_the_one_that_it_returns_now() -> None:
    limits = found(run_in(busy_app())("limits", "--json"))
    limit = limits["/callable", "GET"][-1]
    assert limit["limit"].startswith("5/second, from lambda in line")
    assert limit["name"] == "per-second"


def test_a_limit_that_only_a_request_can_tell_is_named_by_its_function() -> None:
    app = Flask(__name__)

    def plan() -> str:
        return request.headers["X-Plan"]

    app.add_url_rule("/", "index", Limiter(app).limit(plan)(lambda: ""))
    (limit,) = found(run_in(app)("limits", "--json"))["/", "GET"]
    assert (limit["limit"], limit["name"]) == ("limit from plan", None)


def test_a_function_that_returns_no_limit_now_is_named() -> None:
    app = Flask(__name__)
    app.add_url_rule("/", "index", Limiter(app).limit(lambda: None)(lambda: ""))
    (limit,) = found(run_in(app)("limits", "--json"))["/", "GET"]
    assert limit["limit"].startswith("none now, from lambda in line")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--endpoint", "dry"), {("/dry", "GET"), ("/dry", "PUT")}),
        (("--endpoint", "dry", "--method", "put"), {("/dry", "PUT")}),
        (("--path", "/item"), {("/item", "GET"), ("/item", "POST")}),
        (("--path", "/static/shop.css"), {("/static/<path:filename>", "GET")}),
        (("--path", "/static/<path:filename>"), {("/static/<path:filename>", "GET")}),
        (("--method", "HEAD", "--path", "/both"), {("/both", "GET")}),
    ],
)
def test_routes_are_chosen_by_endpoint_path_and_method(
    options: tuple[str, ...], expected: set[tuple[str, str]]
) -> None:
    assert set(found(run_in(busy_app())("limits", *options, "--json"))) == expected


def test_a_choice_without_any_route_is_one_clear_line() -> None:
    said = run_in(busy_app())("limits", "--endpoint", "nothing")
    assert said.code == 1
    assert "No route" in said.err


def test_the_limits_that_an_exemption_leaves_are_shown_with_it() -> None:
    app = Flask(__name__)
    limiter = Limiter(app, default_limits="1/hour", application_limits="9/day")

    @app.get("/")
    @limiter.exempt(application=False)
    def index() -> str:
        return ""

    said = run_in(app)("limits", "--endpoint", "index")
    rows = [line.split()[:5] for line in said.out.splitlines()]
    assert rows[1][:5] == ["/", "GET", "exempt,", "except", "from:"]
    assert rows[2][:2] == ["9/day", "client_address"]
    (route,) = run_in(app)("limits", "--endpoint", "index", "--json").data["routes"]
    assert (route["exempt"], route["partly_exempt"], len(route["limits"])) == (False, True, 1)


def test_columns_that_say_nothing_are_left_out() -> None:
    app = Flask(__name__)
    Limiter(app, default_limits="1/hour")
    app.add_url_rule("/", "index", lambda: "")
    heading = run_in(app)("limits").out.splitlines()[0]
    assert heading.split() == ["ROUTE", "METHOD", "LIMIT", "KEY", "SOURCE"]


def test_routes_without_limits_are_marked_unless_that_is_meant() -> None:
    app = Flask(__name__)
    limiter = Limiter(app)
    app.add_url_rule("/free", "free", lambda: "")
    app.add_url_rule("/healthz", "healthz", limiter.exempt(lambda: ""))
    said = run_in(app)("limits")
    rows = {row.split()[0]: row for row in said.out.splitlines() if row.startswith("/")}
    assert "NO LIMIT" in rows["/free"]
    assert "exempt" in rows["/healthz"]
    assert "exempt" in rows["/static/<path:filename>"]
    assert "1 route has no limit." in said.out


def test_limits_that_are_switched_off_are_said_to_be() -> None:
    said = run_in(busy_app(BUCKET_ENABLED=False))("limits")
    assert "enforces nothing: BUCKET_ENABLED is False" in said.out


def test_a_pipe_gets_plain_text() -> None:
    said = run_in(busy_app())("limits")
    assert said.out.isascii()
    assert "\x1b" not in said.out


def test_an_application_without_a_limiter_is_told_so() -> None:
    said = run_in(Flask(__name__))("limits")
    assert said.code == 1
    assert "has no Limiter" in said.err
    assert said.err.count("\n") == 1


def test_a_lease_says_if_nobody_knows_for_how_many_workers(
    app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WEB_CONCURRENCY", raising=False)
    for name, workers in (("unknown", None), ("known", 2)):
        app.config["BUCKET_WORKERS"] = workers
        limited = Limiter(app, name=name).limit("500/second", lease=1)
        app.add_url_rule(f"/{name}", name, limited(lambda: ""))
    rows = run_in(app)("limits").out.splitlines()
    said = {row.split()[0]: row for row in rows if "lease" in row}
    assert "lease 1 s, if the number of workers is known" in said["/unknown"]
    assert "lease 1 s  " in said["/known"]
