"""An application's own limits, replayed: equal to a replay of another make in exact rationals."""

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
from flask import Blueprint, Flask, Response

from flask_bucket import Limiter, request_header
from tests.cli.conftest import run_in


def failed(response: Response) -> bool:
    return response.status_code == 401


def shop() -> Flask:
    """An application with limits of every kind that a log can tell of."""
    app = Flask(__name__)
    limiter = Limiter(app, default_limits="4/minute burst 6")
    Limiter(app, name="site", application_limits=["200/minute burst 50"], key_func=lambda: "all")
    cart = Blueprint("cart", __name__, url_prefix="/cart")
    limiter.limit("3/minute burst 5")(cart)
    items = limiter.shared_limit("11 per 2 minutes", scope="items")

    @app.get("/search")
    @limiter.limit("13/minute burst 14; 100/hour", cost=2)
    def search() -> str:
        return ""

    @app.post("/login")
    @limiter.limit("2/minute burst 4", deduct_when=failed)
    @limiter.limit("1/minute", deduct_when=failed, dry_run=True)
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
    site = Due(("site",), "200/minute burst 50", 50, Fraction(200, 60))
    path = "/items/1" if asked.path in ("/items/4", "/items/9") else asked.path
    match asked.method, path:
        case "GET", "/search":
            first = Due(("search-m", c), "13/minute burst 14", 14, Fraction(13, 60), 2)
            second = Due(("search-h", c), "100/hour", 100, Fraction(100, 3600), 2)
            return "search", [site, first, second]
        case "POST", "/login":
            limit = "2/minute burst 4"
            failures = Due(("login", c), limit, 4, Fraction(2, 60), free_unless=401)
            rate = Fraction(1, 60)
            dry = Due(("login-dry", c), "1/minute", 1, rate, dry_run=True, free_unless=401)
            return "login", [site, failures, dry]
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
            return "plain", [site, Due(("plain", c), "4/minute burst 6", 6, Fraction(4, 60))]
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


def traffic(seed: int, count: int = 3000) -> list[Asked]:
    rng = random.Random(seed)
    routes = ["GET /search", "GET /profile", "POST /profile", "GET /items", "GET /items/4"]
    routes += ["GET /items/9", "GET /plain", "GET /healthz", "GET /cart", "DELETE /cart"]
    routes += ["POST /login"] * 3 + ["GET /search"]
    routes += ["GET /nowhere", "GET /items/x", "POST /search", "GET /login", "DELETE /plain"]
    at = datetime(2024, 5, 17, 10, tzinfo=UTC)
    requests = []
    for _ in range(count):
        at += timedelta(microseconds=rng.choice([0, 1, 100_000, 333_333, 499_999]))
        method, path = rng.choice(routes).split()
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
    assert [limit for limit in expected["limit"] if not expected["limit_refused"][limit]] == []
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
    assert {(endpoint, limit) for endpoint, limit, _ in limits} == set(expected["limit"])
    for (endpoint, limit), count in expected["limit"].items():
        assert limits[endpoint, limit, "requests"] == count
        assert limits[endpoint, limit, "refused"] == expected["limit_refused"][endpoint, limit]
