"""Where a decorator stands, and what a refused request is charged: nothing, from any limit."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest
from flask import Blueprint, Flask, Response, abort, g, request
from flask.testing import FlaskClient

from flask_bucket import Limiter, MemoryStore
from tests.ext.conftest import Clock, CountingStore, allowed, answer, remaining, statuses

View = Callable[..., Any]


def login_required(view: View) -> View:
    """Like most such decorators: copies the view's attributes, and turns strangers away."""

    @wraps(view)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if "Authorization" not in request.headers:
            abort(401)
        return view(*args, **kwargs)

    return wrapper


USER = {"Authorization": "Basic dTpw"}


def test_a_request_that_an_outer_decorator_rejects_charges_no_route_limit(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.add_url_rule("/", "v", login_required(limiter.limit("1/minute")(answer())))
    assert statuses(client, "/", 3) == [401, 401, 401]
    assert buckets.calls == []
    assert statuses(client, "/", 2, headers=USER) == [200, 429]


def test_a_limit_above_charges_before_the_inner_decorator(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.add_url_rule("/", "v", limiter.limit("1/minute")(login_required(answer())))
    assert statuses(client, "/", 2) == [401, 429]


def test_limits_on_both_sides_of_a_login_charge_where_they_stand(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    view = limiter.limit("3/minute")(login_required(limiter.limit("1/minute")(answer())))
    app.add_url_rule("/", "v", view)
    assert statuses(client, "/", 2) == [401, 401]
    assert statuses(client, "/", 1, headers=USER) == [200]
    assert statuses(client, "/", 1) == [429]
    inner, outer = (f"bucket:{{127.0.0.1}}:v:{name}" for name in ("per-minute", "per-minute-2"))
    assert buckets.keys == [outer, outer, outer, inner, outer], "counted from the inside"


def test_an_inner_refusal_gives_back_what_an_outer_limit_took(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    view = limiter.limit("9/minute")(login_required(limiter.limit("1/hour")(answer())))
    app.add_url_rule("/", "v", view)
    assert statuses(client, "/", 4, headers=USER) == [200, 429, 429, 429]
    assert "settle" not in buckets.calls, "in the call that refuses"
    assert remaining(client, "/") == 7, "the one that was answered, and this"


def test_a_refused_request_takes_nothing_from_the_application_limit(
    app: Flask, buckets: CountingStore
) -> None:
    limiter = Limiter(app, redis=buckets, application_limits=["4/minute"])
    client = app.test_client()
    app.add_url_rule("/", "v", limiter.limit("1/hour")(answer()))
    app.add_url_rule("/other", "other", answer())
    assert statuses(client, "/", 5) == [200, 429, 429, 429, 429]
    assert "settle" not in buckets.calls, "given back in the call that refuses"
    assert remaining(client, "/other") == 2


def test_a_refused_request_takes_nothing_from_any_of_several_limits(
    app: Flask, limiter: Limiter, client: FlaskClient, clock: Clock
) -> None:
    app.add_url_rule("/", "v", limiter.limit("1/second; 5/minute; 9/hour")(answer()))
    assert statuses(client, "/", 6) == [200] + [429] * 5
    clock.advance(1)
    client.get("/")
    assert statuses(client, "/", 1) == [429]
    for _ in range(3):
        clock.advance(1)
        assert statuses(client, "/", 1) == [200]


def test_an_application_refusal_reaches_no_view(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets, application_limits=["1/minute"])
    reached: list[str] = []

    def view() -> str:
        reached.append("view")
        return "fine"

    app.add_url_rule("/", "v", limiter.limit("9/minute")(view))
    assert statuses(app.test_client(), "/", 2) == [200, 429]
    assert reached == ["view"]
    assert buckets.calls == ["take", "take", "take"]


def test_a_limit_above_the_route_is_enforced(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    @limiter.limit("2/minute")
    @app.get("/")
    def view() -> str:
        return "fine"

    assert statuses(client, "/", 3) == [200, 200, 429]


def test_a_limit_above_the_route_is_enforced_when_its_name_is_gone(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    def register() -> None:
        @limiter.limit("2/minute")
        @app.get("/")
        def view() -> str:
            return "fine"

    register()
    gc.collect()
    assert statuses(client, "/", 3) == [200, 200, 429]


def test_a_limit_above_a_blueprints_route_is_enforced_in_a_factory(buckets: CountingStore) -> None:
    limiter = Limiter(redis=buckets)

    def create_app() -> Flask:
        app, bp = Flask("made"), Blueprint("bp", __name__)

        @limiter.limit("2/minute")
        @bp.get("/")
        @limiter.limit("9/minute")
        def view() -> str:
            return "fine"

        app.register_blueprint(bp)
        limiter.init_app(app)
        return app

    app = create_app()
    gc.collect()
    assert allowed(app.test_client(), "/") == 2


def test_a_limit_above_the_route_leaves_automatic_options_alone(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    limiter.limit("1/minute")(app.get("/")(answer()))
    assert statuses(client, "/", 3, method="OPTIONS") == [200] * 3


def test_a_limit_above_the_route_counts_options_that_the_view_answers(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    """Otherwise a client could try passwords with OPTIONS."""
    methods = ["POST", "OPTIONS"]
    limiter.limit("2/minute")(app.route("/", methods=methods)(answer()))
    assert statuses(client, "/", 3, method="OPTIONS") == [200, 200, 429]


def test_a_limit_above_the_route_is_enforced_for_exempt_methods_too(
    buckets: CountingStore,
) -> None:
    app = Flask("exempting")
    app.config["BUCKET_EXEMPT_METHODS"] = ["GET"]
    limiter = Limiter(app, redis=buckets)
    limiter.limit("1/minute")(app.get("/")(answer()))
    assert statuses(app.test_client(), "/", 2) == [200, 429]


def test_a_function_limited_for_one_endpoint_is_free_as_another_view(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    view = answer()
    app.add_url_rule("/limited", "limited", limiter.limit("1/minute")(view))
    app.add_url_rule("/tight", "tight", limiter.limit("2/minute")(view))
    app.add_url_rule("/free", "free", view)
    assert [allowed(client, path) for path in ("/limited", "/tight", "/free")] == [1, 2, 30]


def test_a_class_method_limited_elsewhere_is_free(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    from flask.views import MethodView

    def get(self: MethodView) -> str:
        return "fine"

    limited = type("Limited", (MethodView,), {"get": limiter.limit("1/minute")(get)})
    free = type("Free", (MethodView,), {"get": get})
    app.add_url_rule("/limited", view_func=limited.as_view("limited"))  # type: ignore[attr-defined]
    app.add_url_rule("/free", view_func=free.as_view("free"))  # type: ignore[attr-defined]
    assert (allowed(client, "/free"), allowed(client, "/limited")) == (30, 1)


def test_a_key_function_may_need_what_an_outer_decorator_found(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    def identified(view: View) -> View:
        @wraps(view)
        def wrapper() -> Any:
            g.user = request.args["user"]
            return view()

        return wrapper

    view = limiter.limit("1/minute", key_func=lambda: str(g.user))(answer())
    app.add_url_rule("/", "v", identified(view))
    assert statuses(client, "/?user=a", 2) == [200, 429]
    assert statuses(client, "/?user=b", 2) == [200, 429]


def test_a_key_function_may_need_a_blueprints_before_request(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    bp = Blueprint("bp", __name__)

    @bp.before_request
    def identify() -> None:
        g.user = request.args["user"]

    bp.add_url_rule("/", "v", limiter.limit("1/minute", key_func=lambda: str(g.user))(answer()))
    app.register_blueprint(bp)
    assert statuses(client, "/?user=a", 2) == [200, 429]
    assert statuses(client, "/?user=b", 2) == [200, 429]


def test_a_hook_that_answers_before_the_limiter_charges_nothing(buckets: CountingStore) -> None:
    app = Flask("early")

    @app.before_request
    def maintenance() -> tuple[str, int]:
        return "Back at noon.", 503

    limiter = Limiter(app, redis=buckets, application_limits=["1/minute"])
    app.get("/")(limiter.limit("1/minute")(answer()))
    responses = [app.test_client().get("/") for _ in range(3)]
    assert [r.status_code for r in responses] == [503] * 3
    assert "X-RateLimit-Limit" not in responses[0].headers
    assert buckets.calls == []


def test_a_hook_that_answers_after_the_limiter_keeps_the_headers(
    app: Flask, buckets: CountingStore
) -> None:
    Limiter(app, redis=buckets, application_limits=["2/minute"])
    app.before_request(lambda: Response("Back at noon.", 503))
    assert remaining(app.test_client(), "/") == 1


def test_requests_that_share_an_application_context_share_no_state(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.add_url_rule("/limited", "limited", limiter.limit("1/minute")(answer()))
    app.add_url_rule("/free", "free", lambda: str(limiter.current))
    with app.app_context():
        assert statuses(client, "/limited", 2) == [200, 429]
        free = client.get("/free")
        assert (free.text, free.status_code) == ("None", 200)
        assert "X-RateLimit-Limit" not in free.headers
        assert "Retry-After" not in free.headers


def test_a_request_within_a_request_has_a_state_of_its_own(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.add_url_rule("/inner", "inner", limiter.limit("1/hour")(answer()))

    @app.get("/outer")
    @limiter.limit("9/minute")
    def outer() -> str:
        inner = app.test_client().get("/inner").status_code
        assert limiter.current is not None
        assert limiter.current.binding is not None
        return f"{inner} {limiter.current.binding.limit}"

    assert client.get("/outer").text == "200 9/minute"
    response = client.get("/outer")
    assert (response.text, response.status_code) == ("429 9/minute", 200)
    assert response.headers["X-RateLimit-Remaining"] == "7"


def test_a_copied_request_context_can_be_limited_in_a_thread(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from flask import copy_current_request_context

    helper = limiter.limit("2/minute")(answer("done"))

    @app.get("/")
    def view() -> str:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(copy_current_request_context(helper)).result()

    assert statuses(client, "/", 3) == [200, 200, 429]


def test_two_refusing_limiters_leave_each_others_tokens(app: Flask, clock: Clock) -> None:
    first = Limiter(app, redis=MemoryStore(clock), name="first", default_limits=["9/minute"])
    second = Limiter(app, redis=MemoryStore(clock), name="second", default_limits=["1/hour"])
    app.add_url_rule("/", "v", answer())
    app.add_url_rule("/free", "free", second.exempt(answer()))
    seen: list[int] = []

    @app.teardown_request
    def note(error: BaseException | None) -> None:
        assert first.current is not None
        seen.append(first.current.outcomes[0].remaining)

    client = app.test_client()
    assert statuses(client, "/", 3) == [200, 429, 429]
    assert seen == [8, 8, 8], "one answer, and the refused requests are given back"


def test_a_limited_hook_before_the_limiter_is_charged_with_the_rest(clock: Clock) -> None:
    app, buckets = Flask("hooked"), CountingStore(clock)
    limiter = Limiter(redis=buckets, application_limits=["9/minute"])
    app.before_request(limiter.limit("3/minute")(lambda: None))
    limiter.init_app(app)
    app.add_url_rule("/", "v", limiter.limit("1/hour")(answer()))
    app.add_url_rule("/other", "other", answer())
    client = app.test_client()
    assert statuses(client, "/", 3) == [200, 429, 429], "the hook's is given back"
    assert len(buckets) == 3
    with app.test_request_context("/", environ_overrides={"REMOTE_ADDR": "127.0.0.1"}):
        assert app.preprocess_request() is None
        assert limiter.current is not None
        assert [o.remaining for o in limiter.current.outcomes] == [1, 7]


@pytest.mark.parametrize("n", range(2))
def test_a_crash_leaves_the_charge_taken(
    app: Flask, limiter: Limiter, client: FlaskClient, n: int
) -> None:
    def crash() -> str:
        raise ZeroDivisionError

    deduct_when = (None, lambda response: False)[n]
    app.add_url_rule("/", "v", limiter.limit("2/minute", deduct_when=deduct_when)(crash))
    assert statuses(client, "/", 3) == [500, 500, 429]


def test_a_crash_that_the_tests_see_leaves_the_charge_taken(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.testing = True

    def crash() -> str:
        raise ZeroDivisionError

    app.add_url_rule("/", "v", limiter.limit("1/minute")(crash))
    with pytest.raises(ZeroDivisionError):
        client.get("/")
    assert statuses(client, "/", 1) == [429]


@pytest.mark.parametrize("early", ["block", "function"])
def test_a_filter_frees_what_a_hook_before_the_limiter_s_charges(
    app: Flask, buckets: CountingStore, client: FlaskClient, early: str
) -> None:
    limiter = Limiter(redis=buckets)
    asked: list[str] = []
    limited = limiter.limit("1/minute")(answer())

    @app.before_request
    def charge() -> None:
        if early == "function":
            limited()
        else:
            with limiter.limit("1/minute", scope="early"):
                pass

    @limiter.request_filter
    def is_staff() -> bool:
        asked.append(request.path)
        return "staff" in request.args

    limiter.init_app(app)
    app.add_url_rule("/", view_func=answer())
    assert statuses(client, "/?staff", 3) == [200] * 3
    assert len(asked) == 3
    assert statuses(client, "/", 2) == [200, 429]


def test_a_filter_may_charge_a_block_of_its_own(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    @limiter.request_filter
    def passes() -> bool:
        with limiter.limit("2/minute", scope="filter"):
            return True

    app.add_url_rule("/", view_func=answer())
    assert statuses(client, "/", 3) == [200, 200, 429]
