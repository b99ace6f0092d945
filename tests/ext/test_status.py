"""The view that tells a client what it has left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Blueprint, Flask, request
from flask.testing import FlaskClient
from flask.views import MethodView

from flask_bucket import Limiter, MemoryStore, Rule, networks
from tests.conftest import START
from tests.ext.conftest import Clock, CountingStore, answer, statuses

ME = {"REMOTE_ADDR": "192.0.2.1"}


@pytest.fixture
def shop(app: Flask, limiter: Limiter) -> Limiter:
    """A Limiter, with its status at /left and a limited view at /search."""
    app.add_url_rule("/left", view_func=limiter.status_view)
    app.add_url_rule("/search", "search", limiter.limit("5/minute")(answer()))
    return limiter


def left(client: FlaskClient, **options: Any) -> list[dict[str, Any]]:
    buckets: list[dict[str, Any]] = client.get("/left", **options).get_json()["buckets"]
    return buckets


def names(buckets: list[dict[str, Any]]) -> list[str]:
    return [f"{bucket['scope']} {bucket['name']}" for bucket in buckets]


def test_a_client_hears_what_it_has_left(client: FlaskClient, shop: Limiter, clock: Clock) -> None:
    statuses(client, "/search", 3)
    clock.advance(6)
    assert left(client) == [
        {
            "name": "per-minute",
            "scope": "search",
            "source": "view",
            "method": None,
            "limit": "5/minute",
            "capacity": 5,
            "remaining": 2,
            "reset_after": 30.0,
        }
    ]


def test_it_is_one_peek_and_takes_nothing(
    client: FlaskClient, shop: Limiter, app: Flask, buckets: CountingStore
) -> None:
    app.add_url_rule("/other", "other", shop.limit("7/minute; 9/hour")(answer()))
    statuses(client, "/search", 1)
    statuses(client, "/other", 1)
    buckets.calls.clear()
    assert [bucket["remaining"] for bucket in left(client)] == [4, 6, 8]
    assert buckets.calls == ["peek"]
    assert [bucket["remaining"] for bucket in left(client)] == [4, 6, 8]


def test_it_is_exempt_itself(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(
        app, redis=buckets, application_limits="3/hour", default_limits="2/hour", name="api"
    )
    app.add_url_rule("/left", view_func=limiter.status_view)
    client = app.test_client()
    assert statuses(client, "/left", 5) == [200] * 5
    assert "X-RateLimit-Limit" not in client.get("/left").headers
    assert [bucket["remaining"] for bucket in left(client)] == [3]


def test_a_limit_for_methods_that_no_route_serves_is_told(
    app: Flask, buckets: CountingStore
) -> None:
    rule = Rule("3/hour", methods=["POST"])
    limiter = Limiter(app, redis=buckets, application_limits=rule)
    app.add_url_rule("/left", view_func=limiter.status_view)
    client = app.test_client()
    assert client.post("/nowhere").status_code == 404
    assert [bucket["remaining"] for bucket in left(client)] == [2]


def test_it_can_have_a_limit_of_its_own(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    app.add_url_rule("/left", view_func=limiter.limit("2/minute")(limiter.status_view))
    assert statuses(client, "/left", 3) == [200, 200, 429]


def test_a_full_bucket_is_told_only_of_application_limits(
    app: Flask, buckets: CountingStore
) -> None:
    limiter = Limiter(app, redis=buckets, application_limits=Rule("9/minute", per_method=True))
    app.add_url_rule("/left", view_func=limiter.status_view, methods=["GET"])
    app.add_url_rule("/admin", "admin", limiter.limit("5/minute")(answer()), methods=["GET"])
    (bucket,) = left(app.test_client())
    told = {"name": "per-minute", "scope": None, "source": "application", "method": "GET"}
    assert told.items() <= bucket.items()


class Shown(MethodView):
    init_every_request = False

    def get(self) -> str:
        return "shown"


def test_a_client_hears_names_that_the_author_wrote(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.config["BUCKET_DEFAULT_LIMITS"] = "9/minute"
    second = Limiter(app, redis=MemoryStore(), name="second")
    app.add_url_rule("/left", view_func=second.status_view)
    api = Blueprint("api", __name__, url_prefix="/api")
    second.limit("8/minute")(api)
    api.add_url_rule("/search", "search", answer())
    app.register_blueprint(api)
    app.add_url_rule("/plain", "plain", answer())
    Shown.get = second.limit("7/minute")(Shown.get)  # type: ignore[method-assign]
    app.add_url_rule("/class", view_func=Shown.as_view("class"))
    by_plan = second.limit(lambda: "6/minute", per_method=True)
    app.add_url_rule("/plan", "plan", by_plan(answer()))
    shared = second.shared_limit("5/minute", scope="of two: a&b")
    app.add_url_rule("/shared", "shared", shared(answer()))
    for path in ("/api/search", "/plain", "/class", "/plan", "/shared"):
        client.get(path)
    told = [(b["scope"], b["source"], b["method"], b["capacity"]) for b in left(client)]
    assert sorted(told, key=lambda each: -each[3]) == [
        ("plain", "default", None, 9),
        ("api.search", "blueprint", None, 8),
        ("class", "view", None, 7),
        ("plan", "view", "GET", 6),
        ("of two: a&b", "view", None, 5),
    ]


def test_a_client_hears_nothing_of_others(client: FlaskClient, shop: Limiter) -> None:
    statuses(client, "/search", 3, environ_base=ME)
    assert left(client) == []
    assert left(client, environ_base=ME)[0]["remaining"] == 2


def test_nobody_may_keep_the_answer(client: FlaskClient, shop: Limiter) -> None:
    assert client.get("/left").headers["Cache-Control"] == "no-store"


def test_a_cost_is_never_asked_for(app: Flask, shop: Limiter, client: FlaskClient) -> None:
    costs = shop.limit("9/minute", cost=lambda: int(request.args["cost"]))
    app.add_url_rule("/costly", "costly", costs(answer()))
    client.get("/costly?cost=4")
    assert left(client)[0]["remaining"] == 5


@pytest.mark.parametrize(
    "options",
    [
        {"key_func": lambda: request.view_args["shop"]},  # type: ignore[index]
        {"exempt_when": lambda: request.view_args["shop"] == "ours"},  # type: ignore[index]
    ],
    ids=["key_func", "exempt_when"],
)
def test_a_function_that_needs_its_own_view_leaves_its_bucket_out(
    app: Flask, shop: Limiter, client: FlaskClient, options: dict[str, Callable[[], Any]]
) -> None:
    app.add_url_rule("/<shop>/cart", "cart", shop.limit("9/minute", **options)(lambda shop: shop))  # type: ignore[arg-type]
    assert statuses(client, "/mine/cart", 1) == [200]
    statuses(client, "/search", 1)
    assert names(left(client)) == ["search per-minute"]


def test_a_plan_is_asked_for_once(app: Flask, buckets: CountingStore) -> None:
    asked = []

    def plan() -> str:
        asked.append(1)
        return "9/minute"

    limiter = Limiter(app, redis=buckets, default_limits=plan)
    app.add_url_rule("/left", view_func=limiter.status_view)
    for n in range(5):
        app.add_url_rule(f"/{n}", f"view-{n}", answer())
    client = app.test_client()
    client.get("/3")
    asked.clear()
    assert [bucket["remaining"] for bucket in left(client)] == [8]
    assert len(asked) == 1


def test_dry_run_limits_are_not_told(app: Flask, shop: Limiter, client: FlaskClient) -> None:
    app.add_url_rule("/trial", "trial", shop.limit("9/minute", dry_run=True)(answer()))
    client.get("/trial")
    assert left(client) == []


def test_a_filtered_client_has_no_limits(shop: Limiter, client: FlaskClient) -> None:
    statuses(client, "/search", 1, environ_base=ME)
    shop.request_filter(networks("192.0.2.0/24"))
    assert left(client, environ_base=ME) == []


def test_without_limits_there_is_nothing_to_tell(shop: Limiter, client: FlaskClient) -> None:
    statuses(client, "/search", 1)
    shop.enabled = False
    assert left(client) == []


def test_during_an_outage_the_answer_says_so(app: Flask) -> None:
    nobody = "redis://127.0.0.1:1/0"
    limiter = Limiter(app, redis=nobody, application_limits="9/minute")
    app.add_url_rule("/left", view_func=limiter.status_view)
    assert app.test_client().get("/left").get_json() == {
        "buckets": [],
        "bans": [],
        "degraded": True,
    }


def test_a_client_hears_of_its_bans_and_until_when(
    app: Flask, buckets: CountingStore, client: FlaskClient
) -> None:
    limiter = Limiter(app, redis=buckets, bans="2/hour for 1 day")
    app.add_url_rule("/left", view_func=limiter.status_view)
    limited = limiter.limit("1/minute", ban="1/hour for 1 hour", per_method=True)
    app.add_url_rule("/", "index", limited(answer()))
    app.add_url_rule("/other", "other", limiter.limit("1/minute")(answer()))
    assert client.get("/left").get_json()["bans"] == []
    statuses(client, "/", 2)
    own = {"scope": "index", "retry_after": 3600.0, "banned_until": START // 10**6 + 3600}
    assert client.get("/left").get_json()["bans"] == [own]
    statuses(client, "/other", 2)
    everywhere = {"scope": None, "retry_after": 86400.0, "banned_until": START // 10**6 + 86400}
    told = client.get("/left").get_json()
    assert told["bans"] == [everywhere, own]
    assert [bucket["name"] for bucket in told["buckets"]] == ["per-minute", "per-minute"]


def test_a_client_hears_of_no_ban_in_a_dry_run(
    app: Flask, buckets: CountingStore, client: FlaskClient
) -> None:
    app.config["BUCKET_DRY_RUN"] = True
    limiter = Limiter(app, redis=buckets, bans="1/hour for 1 day")
    app.add_url_rule("/left", view_func=limiter.status_view)
    app.add_url_rule("/", "index", limiter.limit("1/minute")(answer()))
    statuses(client, "/", 3)
    assert client.get("/left").get_json()["bans"] == []
