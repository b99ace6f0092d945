"""``flask bucket simulate`` without ``--limit``: an application's own limits, replayed."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from flask import Blueprint, Flask, Response, request

from flask_bucket import Limiter, client_network, networks, request_header
from tests.cli.conftest import Run, line, run_in


def failed(response: Response) -> bool:
    return response.status_code == 401


def shop() -> Flask:
    """An application with limits of every kind that a log can tell of."""
    app = Flask(__name__)
    limiter = Limiter(app, default_limits="7/minute burst 9")
    Limiter(app, name="site", application_limits=["90/minute burst 100"], key_func=lambda: "all")
    cart = Blueprint("cart", __name__, url_prefix="/cart")
    limiter.limit("3/minute burst 5")(cart)
    items = limiter.shared_limit("11 per 2 minutes", scope="items")

    @app.get("/search")
    @limiter.limit("13/minute burst 14; 100/hour", cost=2)
    def search() -> str:
        return ""

    @app.post("/login")
    @limiter.limit("2/minute burst 4", deduct_when=failed)
    def login() -> str:
        return ""

    @app.route("/profile", methods=["GET", "POST"])
    @limiter.limit("4/minute", per_method=True, key_func=request_header("X-User"))
    def profile() -> str:
        return ""

    @app.get("/items/<int:number>")
    @items
    def item(number: int) -> str:
        return ""

    @app.get("/items")
    @items
    @limiter.limit("1/minute", dry_run=True)
    def list_items() -> str:
        return ""

    @app.get("/plain")
    def plain() -> str:
        return ""

    @app.get("/healthz")
    @limiter.exempt
    def healthz() -> str:
        return ""

    @cart.get("")
    def show() -> str:
        return ""

    @cart.delete("")
    def empty() -> str:
        return ""

    app.register_blueprint(cart)
    return app


@dataclass(frozen=True)
class Asked:
    """A request, as the independent replay sees it."""

    at: datetime
    client: str
    user: str
    method: str
    path: str
    status: int


@dataclass(frozen=True)
class Due:
    """A bucket that a request is charged, written down by hand."""

    bucket: tuple[str, ...]
    limit: str
    capacity: int
    rate: Fraction  # tokens a second
    cost: int = 1
    dry_run: bool = False
    free_unless: int | None = None


def dues(asked: Asked) -> tuple[str | None, list[Due]]:
    """Return the endpoint and the buckets of a request: the limits of the shop, by hand."""
    c = asked.client
    site = Due(("site",), "90/minute burst 100", 100, Fraction(90, 60))
    path = "/items/1" if asked.path in ("/items/4", "/items/9") else asked.path
    match asked.method, path:
        case "GET", "/search":
            first = Due(("search-m", c), "13/minute burst 14", 14, Fraction(13, 60), 2)
            second = Due(("search-h", c), "100/hour", 100, Fraction(100, 3600), 2)
            return "search", [site, first, second]
        case "POST", "/login":
            limit = "2/minute burst 4"
            return "login", [site, Due(("login", c), limit, 4, Fraction(2, 60), free_unless=401)]
        case "GET" | "POST", "/profile":
            bucket = ("profile", asked.method, asked.user)
            own = [Due(bucket, "4/minute", 4, Fraction(4, 60))] if asked.user else []
            return "profile", [site, *own]
        case "GET", "/items/1":
            return "item", [site, Due(("items", c), "11 per 2 minutes", 11, Fraction(11, 120))]
        case "GET", "/items":
            shared = Due(("items", c), "11 per 2 minutes", 11, Fraction(11, 120))
            dry = Due(("list", c), "1/minute", 1, Fraction(1, 60), dry_run=True)
            return "list_items", [site, shared, dry]
        case "GET", "/plain":
            return "plain", [site, Due(("plain", c), "7/minute burst 9", 9, Fraction(7, 60))]
        case "GET", "/healthz":
            return "healthz", [site]
        case "GET" | "DELETE", "/cart":
            endpoint = "cart.show" if asked.method == "GET" else "cart.empty"
            return endpoint, [site, Due((endpoint, c), "3/minute burst 5", 5, Fraction(3, 60))]
    return None, [site]


def replayed(requests: list[Asked]) -> dict[str, Counter[Any]]:
    """Replay requests in exact rationals: no code of the package, one decision a request."""
    balances: dict[tuple[str, ...], tuple[Fraction, datetime]] = {}
    seen: dict[str, Counter[Any]] = {
        name: Counter() for name in ("endpoint", "refused", "limit", "limit_refused")
    }
    for asked in sorted(requests, key=lambda r: r.at):
        endpoint, asks = dues(asked)
        levels = {}
        for due in asks:
            balance, last = balances.get(due.bucket, (Fraction(due.capacity), asked.at))
            gained = Fraction((asked.at - last) // timedelta(microseconds=1), 10**6) * due.rate
            levels[due.bucket] = min(Fraction(due.capacity), balance + gained)
        lacking = [due for due in asks if levels[due.bucket] < due.cost]
        refused = any(not due.dry_run for due in lacking)
        seen["endpoint"][endpoint] += 1
        seen["refused"][endpoint] += refused
        for due in asks:
            seen["limit"][endpoint, due.limit] += 1
            seen["limit_refused"][endpoint, due.limit] += due in lacking
            free = due.free_unless is not None and asked.status != due.free_unless
            taken = 0 if refused or due in lacking or free else due.cost
            balances[due.bucket] = levels[due.bucket] - taken, asked.at
    return seen


def traffic(seed: int, count: int = 1500) -> list[Asked]:
    rng = random.Random(seed)
    paths = ["/search", "/login", "/profile", "/items", "/items/4", "/items/9", "/plain"]
    paths += ["/healthz", "/cart", "/nowhere", "/items/x"]
    at = datetime(2024, 5, 17, 10, tzinfo=UTC)
    requests = []
    for _ in range(count):
        at += timedelta(microseconds=rng.choice([0, 1, 100_000, 333_333, 999_999]))
        path = rng.choice(paths)
        method = rng.choice(["GET", "GET", "POST", "DELETE"])
        client = rng.choice(["203.0.113.7", "203.0.113.8", "2001:db8::/64"])
        user = rng.choice(["", "alice", "bob"])
        requests.append(Asked(at, client, user, method, path, rng.choice([200, 401, 404])))
    return requests


def as_json(asked: Asked) -> str:
    return json.dumps(
        {
            "ts": asked.at.isoformat(),
            "user_id": asked.user,
            "status": asked.status,
            "request": {
                "client_ip": asked.client.replace("/64", "7"),
                "method": asked.method,
                "uri": asked.path + "?page=2",
            },
        }
    )


@pytest.mark.parametrize("seed", range(4))
def test_limits_of_an_application_are_replayed_as_exact_rationals_replay_them(
    seed: int, write_log: Callable[..., Path]
) -> None:
    # Logs are written when requests end.
    requests = sorted(traffic(seed), key=lambda r: r.at + timedelta(seconds=len(r.path) % 3))
    expected = replayed(requests)
    log = write_log(*map(as_json, requests))
    data = run_in(shop())("simulate", log, "--by", "user", "--json").data
    refused = expected["refused"].total()
    assert refused > 100
    assert (data["requests"], data["refused"]) == (len(requests), refused)
    assert data["allowed"] == len(requests) - refused
    endpoints = {e["endpoint"]: (e["requests"], e["refused"]) for e in data["endpoints"]}
    assert endpoints == {
        e: (count, expected["refused"][e]) for e, count in expected["endpoint"].items()
    }
    limits: Counter[Any] = Counter()
    for entry in data["limits"]:
        limits[entry["endpoint"], entry["limit"], "requests"] += entry["requests"]
        limits[entry["endpoint"], entry["limit"], "refused"] += entry["refused"]
    for (endpoint, limit), count in expected["limit"].items():
        assert limits[endpoint, limit, "requests"] == count
        assert limits[endpoint, limit, "refused"] == expected["limit_refused"][endpoint, limit]


def simulated(app: Flask, write_log: Callable[..., Path], *lines: str, **options: str) -> Any:
    arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
    return run_in(app)("simulate", write_log(*lines), *arguments, "--json").data


def test_the_report_for_programs_has_exactly_this_shape(write_log: Callable[..., Path]) -> None:
    app = Flask(__name__)
    limiter = Limiter(app)
    app.add_url_rule("/", "index", limiter.limit("2/hour", dry_run=True)(lambda: ""))
    app.add_url_rule("/once", "once", limiter.limit("1/hour")(lambda: ""))
    once = line(rest='"GET /once HTTP/1.1" 200 5')
    tls = line(rest=r'"\x16\x03\x01" 400 150')
    assert simulated(app, write_log, *[line()] * 3, once, once, tls) == {
        "requests": 5,
        "allowed": 4,
        "refused": 1,
        "clients": 1,
        "without_request": 1,
        "malformed": 0,
        "first_malformed": None,
        "endpoints": [
            {"endpoint": "once", "requests": 2, "refused": 1},
            {"endpoint": "index", "requests": 3, "refused": 0},
        ],
        "limits": [
            {
                "endpoint": "index",
                "limit": "2/hour",
                "name": "per-hour",
                "source": "view",
                "limiter": "bucket",
                "dry_run": True,
                "requests": 3,
                "refused": 1,
            },
            {
                "endpoint": "once",
                "limit": "1/hour",
                "name": "per-hour",
                "source": "view",
                "limiter": "bucket",
                "dry_run": False,
                "requests": 2,
                "refused": 1,
            },
        ],
        "worst": [{"client": "203.0.113.7", "refused": 1, "requests": 2 + 3}],
        "assumptions": [],
    }


def test_people_read_endpoints_limits_and_what_is_not_known(
    write_log: Callable[..., Path],
) -> None:
    app = Flask(__name__)
    limiter = Limiter(app)

    def size() -> int:
        return int(request.headers["Content-Length"])

    app.add_url_rule("/", "index", limiter.limit("2/hour", cost=size)(lambda: ""))
    log = write_log(*[line()] * 3, line(rest='"GET /nowhere HTTP/1.1" 404 5'))
    said = run_in(app)("simulate", log)
    assert said.out == (
        "4 requests from 1 client: 3 allowed, 1 refused (25.00%).\n\n"
        "ENDPOINT    REQUESTS  REFUSED   SHARE\n"
        "index              3        1  33.33%\n"
        "(no route)         1        0   0.00%\n\n"
        "LIMIT   ENDPOINT  SOURCE  REQUESTS  REFUSED   SHARE\n"
        "2/hour  index     view           3        1  33.33%\n\n"
        "Most refused:\n"
        "CLIENT       REFUSED  REQUESTS\n"
        "203.0.113.7        1         4\n\n"
        "The log does not tell everything:\n"
        "- The cost that size returns: 1 is assumed.\n"
    )


def refused(data: Any) -> int:
    return int(data["refused"])


def one_view(*rules: Any, view: Callable[[], Any] = lambda: "", **options: Any) -> Flask:
    app = Flask(__name__)
    limiter = Limiter(app)
    app.add_url_rule("/", "index", limiter.limit(*rules, **options)(view))
    return app


def test_networks_are_asked_about_the_address_in_the_log(write_log: Callable[..., Path]) -> None:
    app = one_view("1/hour", exempt_when=networks("203.0.113.0/24"))
    assert refused(simulated(app, write_log, *[line()] * 3)) == 0
    assert refused(simulated(app, write_log, *[line("192.0.2.1")] * 3)) == 2
    whole = one_view("1/hour", key_func=client_network())
    assert refused(simulated(whole, write_log, line("192.0.2.1"), line("192.0.2.9"))) == 1


def test_a_key_that_is_always_the_same_is_taken_as_it_is(write_log: Callable[..., Path]) -> None:
    app = one_view("1/hour", key_func=lambda: "all")
    data = simulated(app, write_log, line("192.0.2.1"), line("192.0.2.9"))
    assert (refused(data), data["assumptions"]) == (1, [])


def test_a_key_that_the_log_does_not_tell_is_the_address_or_the_user(
    write_log: Callable[..., Path],
) -> None:
    app = one_view("1/hour", key_func=request_header("X-API-Key"))
    lines = [line(user="alice"), line(user="bob"), line(user="bob"), line(), line()]
    by_address = simulated(app, write_log, *lines)
    assert refused(by_address) == 4
    assert "the address is used" in by_address["assumptions"][0]
    by_user = simulated(app, write_log, *lines, by="user")
    assert refused(by_user) == 1  # requests without a user are left out
    assert "the user in the log is used" in by_user["assumptions"][0]


def test_tokens_are_given_back_for_a_status_that_does_not_cost_them(
    write_log: Callable[..., Path],
) -> None:
    app = one_view("1/hour", deduct_when=failed)
    welcome, wrong = '"GET / HTTP/1.1" 200 5', '"GET / HTTP/1.1" 401 5'
    lines = [line(rest=rest) for rest in (welcome, welcome, wrong, wrong)]
    data = simulated(app, write_log, *lines)
    assert refused(data) == 1
    assert data["assumptions"] == [
        "What deduct_when failed returns: it is asked with the status alone."
    ]


def test_a_refused_request_gives_nothing_back(write_log: Callable[..., Path]) -> None:
    app = Flask(__name__)
    limiter = Limiter(app)
    tries = limiter.shared_limit("2/hour", scope="tries", deduct_when=failed)
    app.add_url_rule("/a", "a", tries(limiter.limit("1/hour")(lambda: "")))
    app.add_url_rule("/b", "b", tries(lambda: ""))
    lines = [
        line(rest=rest)
        for rest in (
            '"GET /a HTTP/1.1" 401 5',
            '"GET /a HTTP/1.1" 200 5',
            '"GET /b HTTP/1.1" 401 5',
            '"GET /b HTTP/1.1" 401 5',
        )
    ]
    endpoints = simulated(app, write_log, *lines)["endpoints"]
    assert {e["endpoint"]: e["refused"] for e in endpoints} == {"a": 1, "b": 1}


def test_a_dry_run_gives_back_only_what_it_took(write_log: Callable[..., Path]) -> None:
    app = one_view("1/hour", dry_run=True, deduct_when=failed)
    wrong, welcome = line(rest='"GET / HTTP/1.1" 401 5'), line(rest='"GET / HTTP/1.1" 200 5')
    data = simulated(app, write_log, wrong, welcome, wrong)
    assert (refused(data), data["limits"][0]["refused"]) == (0, 2)


def test_a_deduct_when_that_needs_a_request_keeps_the_tokens(
    write_log: Callable[..., Path],
) -> None:
    app = one_view("1/hour", deduct_when=lambda response: request.path == "/")
    data = simulated(app, write_log, line(), line())
    assert refused(data) == 1
    assert "True is assumed" in data["assumptions"][0]


def test_a_limit_from_the_configuration_is_the_one_of_now(write_log: Callable[..., Path]) -> None:
    app = Flask(__name__)
    app.config["SEARCHES"] = "2/hour"
    limiter = Limiter(app)
    limited = limiter.limit(lambda: app.config["SEARCHES"])
    app.add_url_rule("/", "index", limited(lambda: ""))
    data = simulated(app, write_log, *[line()] * 3)
    assert refused(data) == 1
    assert data["limits"][0]["limit"] == "2/hour"
    assert "the one that it returns now is used" in data["assumptions"][0]


def test_a_limit_that_needs_a_request_is_left_out_and_named(
    write_log: Callable[..., Path],
) -> None:
    data = simulated(one_view(lambda: request.headers["X-Plan"]), write_log, *[line()] * 3)
    assert (refused(data), data["limits"]) == (0, [])
    assert "it is left out, because the function needs a request" in data["assumptions"][0]
    assert "lambda in line" in data["assumptions"][0]
    assert "test_app_replay" in data["assumptions"][0]


def test_the_options_that_flask_answers_reach_no_view(write_log: Callable[..., Path]) -> None:
    app = one_view("1/hour")
    options = line(rest='"OPTIONS / HTTP/1.1" 200 5')
    head = line(rest='"HEAD / HTTP/1.1" 200 5')
    data = simulated(app, write_log, options, options, head, line())
    assert refused(data) == 1


def test_request_filters_are_assumed_to_let_nothing_pass(write_log: Callable[..., Path]) -> None:
    app = Flask(__name__)
    limiter = Limiter(app, default_limits="1/hour")
    app.add_url_rule("/", "index", lambda: "")

    @limiter.request_filter
    def is_staff() -> bool:
        return bool(request.headers.get("X-Staff"))

    data = simulated(app, write_log, line(), line())
    assert refused(data) == 1
    assert data["assumptions"] == ["What the request filter is_staff returns: False is assumed."]


@pytest.mark.parametrize("option", [("--together",), ("--suggest", "1%"), ("--plot", "a.png")])
def test_options_for_limits_by_hand_are_refused_without_one(
    option: tuple[str, ...], write_log: Callable[..., Path]
) -> None:
    said = run_in(one_view("1/hour"))("simulate", write_log(line()), *option)
    assert said.code == 2
    assert "for limits that --limit gives" in said.err


def test_without_a_limit_and_an_application_both_are_named(
    run: Run, write_log: Callable[..., Path]
) -> None:
    said = run("simulate", write_log(line()))
    assert said.code == 2
    assert "--limit" in said.err
    assert "flask --app shop bucket simulate" in said.err


def test_nothing_of_the_application_is_charged(write_log: Callable[..., Path]) -> None:
    app = one_view("1/hour")
    simulated(app, write_log, *[line()] * 3)
    client = app.test_client()
    environ = {"REMOTE_ADDR": "203.0.113.7"}
    assert client.get("/", environ_base=environ).status_code == 200
