"""What ``@limiter.limit`` can be written on, and what may be written in it."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial, wraps
from typing import Any

import pytest
from flask import Flask, Response, request
from flask.testing import FlaskClient

from flask_bucket import ConfigError, Limit, Limiter, limit_exceeded
from tests.ext.conftest import Clock, CountingStore, allowed, answer, remaining, statuses


def test_a_limited_view_is_refused_when_its_tokens_are_gone(
    app: Flask, limiter: Limiter, client: FlaskClient, clock: Clock
) -> None:
    app.get("/")(limiter.limit("2/minute")(answer()))
    assert statuses(client, "/", 3) == [200, 200, 429]
    clock.advance(30)
    assert statuses(client, "/", 2) == [200, 429]


def test_a_decorated_view_keeps_its_name_arguments_and_answer(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    @app.get("/<int:n>")
    @limiter.limit("2/minute")
    def doubled(n: int) -> str:
        """Says it twice."""
        return str(2 * n)

    assert (doubled.__name__, doubled.__doc__) == ("doubled", "Says it twice.")
    assert client.get("/21").text == "42"


def test_a_text_may_hold_several_limits(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    app.get("/")(limiter.limit("1000/hour; 2/minute, 500/day")(answer()))
    assert statuses(client, "/", 3) == [200, 200, 429]


@pytest.mark.parametrize(
    "rule",
    [
        "2/minute",
        Limit(2, 2, 60),
        ["2/minute", "1000/hour"],
        ("1000/hour", Limit(2, 2, 60)),
        lambda: "2/minute",
        lambda: Limit(2, 2, 60),
        lambda: ["1000/hour", "2/minute"],
    ],
)
def test_a_rule_is_a_text_a_limit_a_list_or_a_function(
    app: Flask, limiter: Limiter, client: FlaskClient, rule: Any
) -> None:
    app.get("/")(limiter.limit(rule)(answer()))
    assert allowed(client, "/") == 2


def test_a_limit_may_be_written_in_numbers(
    app: Flask, limiter: Limiter, client: FlaskClient, clock: Clock
) -> None:
    view = limiter.limit(capacity=3, refill_rate=Decimal("0.5"), per=2)(answer())
    app.get("/")(view)
    assert allowed(client, "/") == 3
    clock.advance(4)
    assert allowed(client, "/") == 1


def test_burst_is_the_capacity_of_a_text_that_has_none(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(limiter.limit("1/minute", burst=4)(answer()))
    assert allowed(client, "/") == 4


def test_a_function_that_returns_none_means_no_limit_now(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    rules: dict[str, str | None] = {"now": None}
    app.get("/")(limiter.limit(lambda: rules["now"])(answer()))
    assert statuses(client, "/", 3) == [200, 200, 200]
    assert "X-RateLimit-Limit" not in client.get("/").headers
    rules["now"] = "1/minute"
    assert statuses(client, "/", 2) == [200, 429]


def test_a_function_may_ask_about_the_request(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    def plan() -> str:
        return request.headers.get("Plan", "none")

    def by_plan() -> str:
        return "3/minute" if plan() == "gold" else "1/minute"

    app.get("/")(
        limiter.limit(by_plan, key_func=lambda: request.headers.get("Plan", "none"))(answer())
    )
    assert allowed(client, "/", headers={"Plan": "gold"}) == 3
    assert allowed(client, "/") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"rule": "often"},
        {"rule": "5/fortnight"},
        {"rule": ""},
        {"rule": []},
        {"rule": 5},
        {"rule": b"5/second"},
        {"rule": {"5/second"}},
        {},
        {"capacity": 5},
        {"refill_rate": 5},
        {"rule": "5/second", "capacity": 5, "refill_rate": 5},
        {"rule": "5/second", "per": 60},
        {"rule": "5/second burst 10", "burst": 20},
        {"rule": "5/second; 10/minute", "burst": 20},
        {"rule": "5/second", "name": "No Name"},
        {"rule": lambda: "5/second", "name": "No Name"},
        {"rule": lambda: "5/second", "burst": 0},
        {"rule": "5/second", "scope": ""},
        {"rule": "5/second", "scope": 7},
        {"rule": "5/second", "methods": "POST"},
        {"rule": "5/second", "methods": []},
        {"rule": "5/second", "cost": -1},
        {"rule": "5/second", "cost": 1.5},
        {"rule": "5/second", "cost": True},
        {"rule": "5/second", "key_func": "address"},
        {"rule": "5/second", "exempt_when": True},
        {"rule": "5/second", "deduct_when": False},
        {"rule": "5/second", "on_breach": "no"},
        {"rule": "5/second", "error_message": 5},
    ],
)
def test_what_is_no_limit_is_refused_where_it_is_written(
    limiter: Limiter, arguments: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError):
        limiter.limit(**arguments)


def test_a_bad_text_is_named_with_what_was_expected(limiter: Limiter) -> None:
    with pytest.raises(ConfigError, match=r"5/fortnight.*expected"):
        limiter.limit("5/fortnight")


@pytest.mark.parametrize("target", [None, "view", 7, object(), [answer()]])
def test_a_limit_on_what_is_no_function_is_an_error(limiter: Limiter, target: Any) -> None:
    with pytest.raises(ConfigError, match="function or a Blueprint"):
        limiter.limit("1/minute")(target)


def test_a_limit_on_a_class_says_what_to_do(limiter: Limiter) -> None:
    with pytest.raises(ConfigError, match="decorate its methods"):

        @limiter.limit("1/minute")
        class View:
            pass


def test_a_limit_on_the_application_says_what_to_do(app: Flask, limiter: Limiter) -> None:
    with pytest.raises(ConfigError, match="application_limits"):
        limiter.limit("1/minute")(app)
    with pytest.raises(ConfigError, match="BUCKET_ENABLED"):
        limiter.exempt(app)


def test_a_plain_function_is_limited_within_a_request(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    @limiter.limit("2/minute")
    def costly() -> str:
        return "done"

    app.get("/once")(lambda: costly())
    app.add_url_rule("/twice", "twice", lambda: costly() + costly())
    assert statuses(client, "/once", 3) == [200, 200, 429]
    assert statuses(client, "/twice", 2) == [200, 429], "another endpoint, another bucket"


def test_a_plain_function_is_free_outside_a_request(app: Flask, limiter: Limiter) -> None:
    costly = limiter.limit("1/minute")(answer())
    assert [costly(), costly()] == ["fine", "fine"]
    with app.app_context():
        assert [costly(), costly()] == ["fine", "fine"]


def test_a_view_called_by_another_view_is_charged_for_that_endpoint(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    inner = limiter.limit("1/minute")(answer("inner"))
    app.add_url_rule("/inner", "inner", inner)
    app.add_url_rule("/outer", "outer", lambda: inner())
    assert statuses(client, "/outer", 2) == [200, 429]
    assert statuses(client, "/inner", 2) == [200, 429]


def test_the_same_view_under_two_endpoints_has_two_buckets(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    view = limiter.limit("1/minute")(answer())
    app.add_url_rule("/a", "a", view)
    app.add_url_rule("/b", "b", view)
    assert statuses(client, "/a", 2) == [200, 429]
    assert statuses(client, "/b", 2) == [200, 429]


def test_two_urls_of_one_endpoint_share_its_bucket(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/<path:where>")(limiter.limit("1/minute")(lambda where: where))
    assert statuses(client, "/a", 1) + statuses(client, "/b", 1) == [200, 429]


def test_functions_of_one_name_do_not_share_a_bucket(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.add_url_rule("/a", "a", limiter.limit("1/minute")(answer()))
    app.add_url_rule("/b", "b", limiter.limit("1/minute")(answer()))
    assert statuses(client, "/a", 1) + statuses(client, "/b", 1) == [200, 200]


def test_stacked_limits_of_one_period_have_buckets_of_their_own(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.add_url_rule("/", "v", limiter.limit("9/minute")(limiter.limit("3/minute")(answer())))
    assert allowed(client, "/") == 3
    assert buckets.keys[:2] == [
        "bucket:{127.0.0.1}:v:per-minute",
        "bucket:{127.0.0.1}:v:per-minute-2",
    ]


def test_a_limit_added_outside_moves_no_bucket(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets)
    inner = limiter.limit("3/minute")(answer())
    app.add_url_rule("/", "v", inner)
    client = app.test_client()
    client.get("/")
    app.view_functions["v"] = limiter.limit("9/minute")(inner)
    assert client.get("/").headers["X-RateLimit-Remaining"] == "1"


def test_scope_and_name_share_a_bucket_over_endpoints(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.add_url_rule("/a", "a", limiter.limit("2/minute", scope="api")(answer()))
    app.add_url_rule("/b", "b", limiter.limit("2/minute", scope="api")(answer()))
    app.add_url_rule("/c", "c", limiter.limit("2/minute", scope="api", name="other")(answer()))
    assert statuses(client, "/a", 1) + statuses(client, "/b", 2) == [200, 200, 429]
    assert statuses(client, "/c", 1) == [200]


def test_a_shared_limit_is_one_bucket_over_several_endpoints(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    together = limiter.shared_limit("3/minute", scope="together")
    app.add_url_rule("/a", "a", together(answer()))
    app.add_url_rule("/b", "b", together(answer()))
    assert statuses(client, "/a", 2) + statuses(client, "/b", 2) == [200, 200, 200, 429]
    with pytest.raises(ConfigError, match="scope"):
        limiter.shared_limit("3/minute", scope="")


def test_a_shared_limit_takes_what_a_limit_takes(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    view = limiter.shared_limit("4/minute", "s", cost=2, methods=["GET"])(answer())
    app.add_url_rule("/", view_func=view, methods=["GET", "POST"])
    assert allowed(client, "/") == 2
    assert statuses(client, "/", 1, method="POST") == [200]


def test_a_blueprint_may_be_limited_by_a_shared_limit(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    from flask import Blueprint

    for name in ("x", "y"):
        blueprint = Blueprint(name, __name__)
        blueprint.add_url_rule(f"/{name}", "v", answer())
        limiter.shared_limit("2/minute", "all")(blueprint)
        app.register_blueprint(blueprint)
    assert statuses(client, "/x", 1) + statuses(client, "/y", 2) == [200, 200, 429]


def test_methods_restrict_a_limit(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    view = limiter.limit("1/minute", methods=["post"])(answer())
    app.add_url_rule("/", view_func=view, methods=["GET", "POST"])
    assert statuses(client, "/", 3) == [200, 200, 200]
    assert statuses(client, "/", 2, method="POST") == [200, 429]


def test_methods_share_a_bucket_unless_per_method(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    methods = ["GET", "POST"]
    app.add_url_rule("/a", "a", limiter.limit("1/minute")(answer()), methods=methods)
    each = limiter.limit("1/minute", per_method=True)(answer())
    app.add_url_rule("/b", "b", each, methods=methods)
    assert statuses(client, "/a", 1) + statuses(client, "/a", 1, method="POST") == [200, 429]
    assert statuses(client, "/b", 2) == [200, 429]
    assert statuses(client, "/b", 2, method="POST") == [200, 429]


def test_head_counts_as_get(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    app.add_url_rule("/a", "a", limiter.limit("2/minute", per_method=True)(answer()))
    app.add_url_rule("/b", "b", limiter.limit("2/minute", methods=["GET"])(answer()))
    app.add_url_rule("/c", "c", limiter.limit("2/minute", methods=["HEAD"])(answer()))
    for path in ("/a", "/b", "/c"):
        assert statuses(client, path, 1, method="HEAD") == [200]
        assert statuses(client, path, 2) == [200, 429]


def test_a_cost_is_a_number_or_a_function(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.add_url_rule("/a", "a", limiter.limit("10/minute", cost=4)(answer()))
    by_length = limiter.limit("10/minute", cost=lambda: int(request.args["n"]))(answer())
    app.add_url_rule("/b", "b", by_length)
    assert [remaining(client, "/a"), remaining(client, "/a")] == [6, 2]
    assert [remaining(client, "/b?n=3"), remaining(client, "/b?n=7")] == [7, 0]


def test_exempt_when_leaves_out_one_limit(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    @app.get("/")
    @limiter.limit("3/minute")
    @limiter.limit("1/hour", exempt_when=lambda: "staff" in request.args)
    def view() -> str:
        return "fine"

    assert statuses(client, "/?staff", 4) == [200, 200, 200, 429]


def test_error_message_is_a_text_or_a_function(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    text = limiter.limit("1/minute", error_message="Slow down.")(answer())
    function = limiter.limit("1/minute", error_message=lambda: f"Not {request.path}.")(answer())
    app.add_url_rule("/a", "a", text)
    app.add_url_rule("/b", "b", function)
    statuses(client, "/a", 1), statuses(client, "/b", 1)
    assert client.get("/a").json == {"error": "Slow down.", "retryAfterMs": 60_000}
    assert client.get("/b").json == {"error": "Not /b.", "retryAfterMs": 60_000}


def test_an_error_message_may_be_translated_late(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    class Lazy:
        def __str__(self) -> str:
            return "Langsamer."

    lazy: Any = Lazy
    app.add_url_rule("/a", "a", limiter.limit("1/minute", error_message=lazy)(answer()))
    client.get("/a")
    assert client.get("/a").json == {"error": "Langsamer.", "retryAfterMs": 60_000}


def test_a_dry_run_limit_reports_and_refuses_nothing(
    app: Flask, limiter: Limiter, client: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[bool] = []
    app.get("/")(limiter.limit("1/minute", dry_run=True)(answer()))

    def note(sender: Flask, limiter: Limiter, decision: Any) -> None:
        told.append(next(o.allowed for o in decision.outcomes if o.shadow))

    with limit_exceeded.connected_to(note, app), caplog.at_level("INFO", "flask_bucket"):
        responses = [client.get("/") for _ in range(3)]
    assert [r.status_code for r in responses] == [200, 200, 200]
    assert told == [False, False]
    assert not any("X-RateLimit-Limit" in r.headers for r in responses)
    assert [r.getMessage() for r in caplog.records] == [
        "Dry run: 1/minute would have refused a request."
    ]


def test_a_dry_run_limit_takes_nothing_from_a_refused_request(
    app: Flask, limiter: Limiter, client: FlaskClient, clock: Clock
) -> None:
    seen: list[int] = []

    @app.get("/")
    @limiter.limit("5/minute burst 5", dry_run=True)
    @limiter.limit("1/second")
    def view() -> str:
        assert limiter.current is not None
        seen.append(limiter.current.outcomes[-1].remaining)
        return "fine"

    assert statuses(client, "/", 3) == [200, 429, 429]
    clock.advance(1)
    assert statuses(client, "/", 1) == [200]
    assert seen == [4, 3]


def test_a_refusal_beside_a_dry_run_refusal_is_told_once(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    told: list[Any] = []
    view = limiter.limit("1/minute", dry_run=True)(limiter.limit("1/hour")(answer()))
    app.get("/")(view)

    def note(sender: Flask, **told_of: Any) -> None:
        told.append(told_of["decision"])

    with limit_exceeded.connected_to(note, app):
        assert statuses(client, "/", 2) == [200, 429]
    assert len(told) == 1


def test_a_partial_and_a_callable_object_may_be_limited(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    class View:
        def __call__(self) -> str:
            return "object"

        def method(self) -> str:
            return "method"

    app.add_url_rule("/a", "a", limiter.limit("1/minute")(partial(answer, "x")()))
    app.add_url_rule("/b", "b", limiter.limit("1/minute")(partial(str, "partial")))
    app.add_url_rule("/c", "c", limiter.limit("1/minute")(View()))
    app.add_url_rule("/d", "d", limiter.limit("1/minute")(View().method))
    for path in ("/a", "/b", "/c", "/d"):
        assert statuses(client, path, 2) == [200, 429]


def test_one_decorator_may_serve_several_views(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    twice = limiter.limit("2/minute")
    app.add_url_rule("/a", "a", twice(answer()))
    app.add_url_rule("/b", "b", twice(answer()))
    assert (allowed(client, "/a"), allowed(client, "/b")) == (2, 2)


def test_a_copied_attribute_does_not_make_a_wrapper_limited(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    def logged(view: Callable[[], str]) -> Callable[[], str]:
        @wraps(view)
        def wrapper() -> str:
            return view()

        return wrapper

    app.get("/")(limiter.limit("9/minute")(logged(limiter.limit("3/minute")(answer()))))
    assert allowed(client, "/") == 3
    assert buckets.calls.count("take") == 8, "two decorators, two calls"


def test_the_current_decision_can_be_read_in_a_view(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    seen: list[Any] = []

    @app.get("/")
    @limiter.limit("5/minute", cost=2)
    def view() -> str:
        seen.append(limiter.current)
        return "fine"

    app.add_url_rule("/free", "free", lambda: str(limiter.current))
    client.get("/")
    assert seen[0].allowed
    assert (seen[0].binding.remaining, seen[0].binding.cost) == (3, 2)
    assert client.get("/free").text == "None"
    assert limiter.current is None


def test_the_current_decision_can_be_read_when_the_request_is_torn_down(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    seen: list[Any] = []
    app.get("/")(limiter.limit("1/minute")(answer()))
    app.teardown_request(lambda error: seen.append(limiter.current))
    statuses(client, "/", 2)
    assert [bool(decision) for decision in seen] == [True, False]


def test_a_signal_tells_of_every_refusal(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    told: list[Any] = []
    app.get("/")(limiter.limit("1/minute")(answer()))

    def note(sender: Flask, limiter: Limiter, decision: Any) -> None:
        told.append((sender, limiter, decision.binding.limit.name))

    with limit_exceeded.connected_to(note, app):
        statuses(client, "/", 3)
    assert told == [(app, limiter, "per-minute")] * 2


def test_response_objects_pass_through(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    app.get("/")(limiter.limit("1/minute")(lambda: Response("made", 201)))
    assert client.get("/").status_code == 201
