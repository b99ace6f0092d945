"""Rule: limits with their options, written once and used anywhere."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from functools import wraps
from typing import Any

import pytest
from flask import Blueprint, Flask, request
from flask.testing import FlaskClient

from flask_bucket import ConfigError, Limit, Limiter, Rule
from tests.ext.conftest import CountingStore, allowed, answer, remaining, statuses

PLAN = Rule("3/minute", cost=2, exempt_when=lambda: "staff" in request.args)


def used_at(place: str, app: Flask, rule: Any, buckets: CountingStore) -> None:
    """Make an application whose only view is limited by a rule, at one of many places."""
    settings: dict[str, Any] = {}
    if place in ("default_limits", "application_limits"):
        settings[place] = [rule]
    limiter = Limiter(app, redis=buckets, **settings)
    blueprint = Blueprint("api", __name__)
    view = answer()
    if place == "view":
        view = limiter.limit(rule)(view)
    elif place == "blueprint":
        limiter.limit(rule)(blueprint)
    blueprint.add_url_rule("/", "v", view)
    app.register_blueprint(blueprint)


@pytest.mark.parametrize("place", ["view", "blueprint", "default_limits", "application_limits"])
def test_a_rule_holds_with_its_options_wherever_it_is_put(
    app: Flask, client: FlaskClient, buckets: CountingStore, place: str
) -> None:
    used_at(place, app, PLAN, buckets)
    assert statuses(client, "/", 2) == [200, 429]
    assert statuses(client, "/?staff", 3) == [200, 200, 200]


@pytest.mark.parametrize("key", ["BUCKET_DEFAULT_LIMITS", "BUCKET_APPLICATION_LIMITS"])
def test_a_rule_can_be_a_setting(app: Flask, buckets: CountingStore, key: str) -> None:
    app.config[key] = PLAN
    Limiter(app, redis=buckets)
    app.get("/")(answer())
    assert statuses(app.test_client(), "/", 2) == [200, 429]


def test_a_list_may_mix_rules_and_texts(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.get("/")(limiter.limit([Rule("9/minute", cost=4), "5/hour", Limit(7, 7, 86_400)])(answer()))
    assert remaining(client, "/") == 4
    assert buckets.calls == ["take"]
    assert len(buckets.keys) == 3


def test_two_equal_stacked_rules_are_two(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    assert Rule("3/minute") == Rule("3/minute")
    app.get("/")(limiter.limit(Rule("3/minute"))(limiter.limit(Rule("3/minute"))(answer())))
    client.get("/")
    assert buckets.keys == [
        "bucket:{127.0.0.1}:view:per-minute",
        "bucket:{127.0.0.1}:view:per-minute-2",
    ]


def test_one_rule_stacked_on_itself_is_charged_twice(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    rule = Rule("3/minute")
    app.get("/")(limiter.limit(rule)(limiter.limit(rule)(answer())))
    client.get("/")
    assert len(set(buckets.keys)) == 2


def test_a_rule_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        PLAN.cost = 3  # type: ignore[misc]  # the point of this test


def test_a_rule_shows_what_it_was_given() -> None:
    assert repr(Rule("3/minute", cost=2)) == "Rule('3/minute', cost=2)"
    assert repr(Rule(capacity=3, refill_rate=1)) == "Rule(capacity=3, refill_rate=1)"


@pytest.mark.parametrize(
    "options", [{"cost": 3}, {"scope": "x"}, {"dry_run": True}, {"methods": ["GET"]}]
)
@pytest.mark.parametrize("source", [PLAN, [PLAN], ["5/minute", PLAN]])
def test_options_beside_a_rule_are_an_error(
    limiter: Limiter, source: Any, options: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=f"A Rule is complete.*{next(iter(options))}"):
        limiter.limit(source, **options)


def test_a_rule_that_a_function_returns_is_an_error(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.testing = True
    app.get("/")(limiter.limit(lambda: PLAN)(answer()))
    with pytest.raises(ConfigError, match="is not a limit"):
        client.get("/")


@pytest.mark.parametrize(
    ("arguments", "options", "match"),
    [
        (("often",), {}, "not a limit"),
        ((), {}, "not a limit"),
        (("5/second",), {"cost": -1}, "cost"),
        (("5/second",), {"key_func": "user"}, "key_func"),
        (("5/second",), {"capacity": 5, "refill_rate": 1}, "not as both"),
        (((PLAN,)), {"burst": 3}, "complete"),
    ],
)
def test_a_wrong_rule_is_an_error_where_it_is_written(
    arguments: Any, options: dict[str, Any], match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        Rule(*arguments, **options)


def test_limits_of_a_function_with_other_numbers_have_other_buckets(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    def by_method() -> str:
        return "1/minute" if request.method == "POST" else "10/minute"

    app.route("/", methods=["GET", "POST"])(limiter.limit(by_method)(answer()))
    assert remaining(client, "/") == 9
    assert remaining(client, "/", method="POST") == 0
    assert remaining(client, "/") == 8


def test_limits_of_a_function_with_a_name_are_one_bucket(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    plans = iter(["10/minute", "4/minute", "10/minute"])
    app.get("/")(limiter.limit(lambda: next(plans), name="plan")(answer()))
    assert [remaining(client, "/") for _ in range(3)] == [9, 3, 2]


def test_a_limit_that_names_itself_is_one_bucket_too(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    plans = iter([Limit(10, 10, 60, name="plan"), Limit(4, 4, 60, name="plan")])
    app.get("/")(limiter.limit(lambda: next(plans))(answer()))
    assert [remaining(client, "/") for _ in range(2)] == [9, 3]


def test_the_name_in_headers_is_that_of_the_period(buckets: CountingStore) -> None:
    app = Flask("named")
    app.config["BUCKET_HEADERS"] = ["ietf"]
    limiter = Limiter(app, redis=buckets)
    app.get("/")(limiter.limit(lambda: "10/minute")(answer()))
    assert app.test_client().get("/").headers["RateLimit"].startswith('"per-minute"')
    assert buckets.keys == ["bucket:{127.0.0.1}:view@callable@10.1-per-6s:per-minute"]


def test_a_scope_may_be_a_function_of_the_endpoint(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    limit = limiter.limit("3/minute", scope=lambda endpoint: endpoint.partition("_")[0])
    for endpoint in ("user_get", "user_list", "item_get"):
        app.add_url_rule(f"/{endpoint}", endpoint, limit(answer()))
    assert [remaining(client, f"/{e}") for e in ("user_get", "user_list", "item_get")] == [2, 1, 2]


def test_limits_of_two_functions_in_one_scope_are_two_buckets(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    shared = [limiter.shared_limit(lambda: "1/minute", scope="api") for _ in range(2)]
    app.get("/")(shared[0](shared[1](answer())))
    assert allowed(client, "/") == 1
    assert buckets.keys[:2] == [
        "bucket:{127.0.0.1}:api@1.1-per-60s:per-minute",
        "bucket:{127.0.0.1}:api@callable-2@1.1-per-60s:per-minute",
    ]


def test_limits_of_two_functions_in_one_scope_are_told_apart_over_other_decorators(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    shared = limiter.shared_limit(lambda: "1/minute", scope="api")
    inner = shared(answer())

    @wraps(inner)
    def between() -> Any:
        return inner()

    app.get("/")(shared(between))
    assert allowed(client, "/") == 1


def test_a_function_s_limit_in_a_scope_is_shared_with_other_views(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    shared = limiter.shared_limit(lambda: "3/minute", scope="api")
    app.add_url_rule("/a", "a", shared(answer()))
    app.add_url_rule("/b", "b", shared(answer()))
    assert [remaining(client, path) for path in ("/a", "/b")] == [2, 1]


@pytest.mark.parametrize("text_outside", [True, False])
def test_a_text_and_a_function_of_one_scope_and_name_are_two_buckets(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore, text_outside: bool
) -> None:
    rules: list[Any] = ["2/minute", lambda: "2/minute"]
    view = answer()
    for rule in reversed(rules) if text_outside else rules:  # the innermost first
        view = limiter.limit(rule, scope="x", name="n")(view)
    app.add_url_rule("/", view_func=view)
    assert allowed(client, "/") == 2
    assert buckets.keys[:2] == ["bucket:{127.0.0.1}:x:n", "bucket:{127.0.0.1}:x:n-2"]


def test_rules_of_two_places_in_one_scope_are_two_buckets(
    app: Flask, buckets: CountingStore
) -> None:
    rule = Rule("2/minute", scope="x")
    Limiter(app, redis=buckets, application_limits=[rule], default_limits=[rule])
    app.add_url_rule("/", view_func=answer())
    assert allowed(app.test_client(), "/") == 2
    key = "bucket:{127.0.0.1}:x:per-minute"
    assert buckets.keys[:2] == [key, f"{key}-2"]
