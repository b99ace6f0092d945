"""Which limits apply: the view's over its blueprint's over the default ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps

import pytest
from flask import Blueprint, Flask, request
from flask.testing import FlaskClient

from flask_bucket import Limit, Limiter
from tests.ext.conftest import CountingStore, allowed, answer, remaining, statuses


def make(
    app: Flask, buckets: CountingStore, **limits: object
) -> tuple[Limiter, Blueprint, FlaskClient]:
    limiter = Limiter(app, redis=buckets, **limits)  # type: ignore[arg-type]  # checked there
    return limiter, Blueprint("bp", __name__), app.test_client()


def test_a_default_limit_gives_each_endpoint_a_bucket(app: Flask, buckets: CountingStore) -> None:
    _, _, client = make(app, buckets, default_limits=["2/minute"])
    app.add_url_rule("/a", "a", answer())
    app.add_url_rule("/b", "b", answer())
    assert (allowed(client, "/a"), allowed(client, "/b")) == (2, 2)


def test_default_limits_of_one_period_are_told_apart(app: Flask, buckets: CountingStore) -> None:
    _, _, client = make(app, buckets, default_limits=["5/minute", Limit(2, 2, 60), lambda: "9/h"])
    app.add_url_rule("/", "a", answer())
    assert allowed(client, "/") == 2
    assert buckets.keys[:3] == [
        "bucket:{127.0.0.1}:a@default:per-minute",
        "bucket:{127.0.0.1}:a@default:per-minute-2",
        "bucket:{127.0.0.1}:a@default@callable@9.1-per-400s:per-hour",
    ]


def test_an_application_limit_is_one_bucket_for_everything(
    app: Flask, buckets: CountingStore
) -> None:
    _, _, client = make(app, buckets, application_limits=["3/minute"])
    app.add_url_rule("/a", "a", answer())
    app.add_url_rule("/b", "b", answer())
    paths = ["/a", "/b", "/nowhere", "/a"]
    assert [client.get(path).status_code for path in paths] == [200, 200, 404, 429]


def test_a_view_overrides_its_blueprint_and_that_the_defaults(
    app: Flask, buckets: CountingStore
) -> None:
    limiter, bp, client = make(app, buckets, default_limits=["2/minute"])
    bp.add_url_rule("/view", "view", limiter.limit("4/minute")(answer()))
    bp.add_url_rule("/bp", "plain", answer())
    limiter.limit("3/minute")(bp)
    app.register_blueprint(bp)
    app.add_url_rule("/default", "default", answer())
    assert [allowed(client, path) for path in ("/view", "/bp", "/default")] == [4, 3, 2]


def test_an_inner_blueprint_overrides_an_outer_one(app: Flask, buckets: CountingStore) -> None:
    limiter, outer, client = make(app, buckets, default_limits=["1/minute"])
    inner, plain = Blueprint("inner", __name__), Blueprint("plain", __name__)
    limiter.limit("2/minute")(outer)
    limiter.limit("3/minute")(inner)
    inner.add_url_rule("/inner", "v", answer())
    plain.add_url_rule("/plain", "v", answer())
    outer.register_blueprint(inner)
    outer.register_blueprint(plain)
    app.register_blueprint(outer)
    assert (allowed(client, "/inner"), allowed(client, "/plain")) == (3, 2)


@pytest.mark.parametrize(("view", "bp", "expected"), [(5, 9, 2), (5, 1, 1), (1, 9, 1)])
def test_override_defaults_false_adds_instead(
    app: Flask, buckets: CountingStore, view: int, bp: int, expected: int
) -> None:
    limiter, blueprint, client = make(app, buckets, default_limits=["2/minute"])
    limiter.limit(f"{bp}/minute", override_defaults=False)(blueprint)
    limited = limiter.limit(f"{view}/minute", override_defaults=False)(answer())
    blueprint.add_url_rule("/", "v", limited)
    app.register_blueprint(blueprint)
    assert allowed(client, "/") == expected


def test_an_overriding_blueprint_keeps_the_defaults_out_also_below_an_adding_view(
    app: Flask, buckets: CountingStore
) -> None:
    limiter, bp, client = make(app, buckets, default_limits=["1/minute"])
    limiter.limit("3/minute")(bp)
    bp.add_url_rule("/", "v", limiter.limit("5/minute", override_defaults=False)(answer()))
    app.register_blueprint(bp)
    assert allowed(client, "/") == 3


def test_one_overriding_limit_among_stacked_ones_overrides(
    app: Flask, buckets: CountingStore
) -> None:
    limiter, _, client = make(app, buckets, default_limits=["1/minute"])
    view = limiter.limit("5/minute", override_defaults=False)(limiter.limit("4/hour")(answer()))
    app.add_url_rule("/", "v", view)
    assert allowed(client, "/") == 4


def test_application_limits_are_never_overridden(app: Flask, buckets: CountingStore) -> None:
    limiter, _, client = make(app, buckets, application_limits=["2/minute"])
    app.add_url_rule("/", "v", limiter.limit("5/minute")(answer()))
    assert allowed(client, "/") == 2


def test_defaults_serve_the_methods_that_a_view_says_nothing_about(
    app: Flask, buckets: CountingStore
) -> None:
    limiter, _, client = make(app, buckets, default_limits=["1/minute"])
    view = limiter.limit("1/minute", methods=["GET"])(answer())
    app.add_url_rule("/", "v", view, methods=["GET", "POST"])
    assert statuses(client, "/", 2) == [200, 429]
    assert statuses(client, "/", 2, method="POST") == [200, 429], "a bucket of its own"


def test_limits_of_one_period_at_every_level_share_no_bucket(
    app: Flask, buckets: CountingStore
) -> None:
    limiter, outer, client = make(
        app, buckets, default_limits=["9/minute"], application_limits=["9/minute"]
    )
    inner = Blueprint("inner", __name__)
    adding = limiter.limit("9/minute", override_defaults=False)
    adding(inner)
    adding(outer)
    inner.add_url_rule("/", "v", adding(answer()))
    outer.register_blueprint(inner)
    app.register_blueprint(outer)
    assert remaining(client, "/") == 8
    assert len(set(buckets.keys)) == len(buckets.keys) == 5


def test_an_endpoint_named_like_a_level_shares_no_bucket(
    app: Flask, buckets: CountingStore
) -> None:
    limiter, _, client = make(app, buckets, default_limits=["1/minute"])
    for n, endpoint in enumerate(["v", "v@default", "v%40default", "@application"]):
        app.add_url_rule(f"/{n}", endpoint, answer())
    app.add_url_rule("/4", "x", limiter.limit("1/minute", override_defaults=False)(answer()))
    for n in range(5):
        assert client.get(f"/{n}").status_code == 200
    assert len(set(buckets.keys)) == len(buckets.keys) == 6


def test_static_files_are_free_of_default_and_application_limits(
    buckets: CountingStore, tmp_path: object
) -> None:
    app = Flask(__name__, static_folder=str(tmp_path), static_url_path="/static")
    limiter, _, client = make(
        app, buckets, default_limits=["1/minute"], application_limits=["1/minute"]
    )
    bp = Blueprint(
        "bp",
        __name__,
        static_folder=str(tmp_path),
        static_url_path="/static",
        url_prefix="/bp",
    )
    limiter.limit("1/minute")(bp)
    app.register_blueprint(bp)
    for path in ("/static/none.css", "/bp/static/none.css"):
        assert statuses(client, path, 3) == [404, 404, 404]
    assert buckets.calls == []


def test_an_endpoint_that_is_only_named_static_is_limited(buckets: CountingStore) -> None:
    app = Flask(__name__, static_folder=None)
    _, bp, client = make(app, buckets, default_limits=["1/minute"])
    app.add_url_rule("/a", "static", answer())
    bp.add_url_rule("/b", "static", answer())
    app.register_blueprint(bp)
    assert statuses(client, "/a", 2) == [200, 429]
    assert statuses(client, "/b", 2) == [200, 429]


def test_an_explicit_limit_on_static_files_counts(buckets: CountingStore) -> None:
    app = Flask(__name__)
    limiter, _, client = make(app, buckets, default_limits=["9/minute"])
    app.view_functions["static"] = limiter.limit("1/minute")(app.view_functions["static"])
    assert statuses(client, "/static/none.css", 2) == [404, 429]


def test_options_are_free_of_default_blueprint_and_application_limits(
    app: Flask, buckets: CountingStore
) -> None:
    limiter, bp, client = make(
        app, buckets, default_limits=["1/minute"], application_limits=["1/minute"]
    )
    limiter.limit("1/minute")(bp)
    bp.add_url_rule("/auto", "auto", answer())
    bp.add_url_rule("/own", "own", answer(), methods=["OPTIONS"])
    app.register_blueprint(bp)
    for path in ("/auto", "/own", "/nowhere"):
        assert 429 not in statuses(client, path, 3, method="OPTIONS")
    assert buckets.calls == []


def test_an_explicit_limit_counts_options_that_the_view_answers(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.add_url_rule("/", "v", limiter.limit("1/minute")(answer()), methods=["OPTIONS"])
    assert statuses(client, "/", 2, method="OPTIONS") == [200, 429]


def test_automatic_options_charge_no_limit_of_the_view(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.add_url_rule("/", "v", limiter.limit("1/minute")(answer()))
    assert statuses(client, "/", 3, method="OPTIONS") == [200, 200, 200]
    assert statuses(client, "/", 2) == [200, 429]


def test_an_exempt_view_is_free_but_for_its_own_limits(app: Flask, buckets: CountingStore) -> None:
    limiter, bp, client = make(
        app, buckets, default_limits=["1/minute"], application_limits=["1/minute"]
    )
    limiter.limit("1/minute")(bp)
    bp.add_url_rule("/free", "free", limiter.exempt(answer()))
    bp.add_url_rule("/own", "own", limiter.exempt(limiter.limit("2/minute")(answer())))
    app.register_blueprint(bp)
    assert statuses(client, "/free", 3) == [200, 200, 200]
    assert statuses(client, "/own", 3) == [200, 200, 429]


def test_exempt_works_in_any_position(app: Flask, buckets: CountingStore) -> None:
    limiter, _, client = make(app, buckets, default_limits=["1/minute"])

    def logged(view: Callable[[], str]) -> Callable[[], str]:
        @wraps(view)
        def wrapper() -> str:
            return view()

        return wrapper

    limiter.exempt(app.get("/above")(logged(answer())))
    app.add_url_rule("/outer", "outer", limiter.exempt(logged(answer())))
    app.add_url_rule("/inner", "inner", logged(limiter.exempt(answer())))
    limited = logged(limiter.exempt(limiter.limit("9/minute")(answer())))
    app.add_url_rule("/limited", "limited", limited)
    app.add_url_rule("/partial", "partial", partial(logged(limiter.exempt(answer()))))
    for path in ("/above", "/outer", "/inner", "/limited", "/partial"):
        assert statuses(client, path, 3) == [200, 200, 200]


def test_exempt_also_works_after_requests(app: Flask, buckets: CountingStore) -> None:
    limiter, _, client = make(app, buckets, default_limits=["1/minute"])
    view = answer()
    app.add_url_rule("/", "v", view)
    assert statuses(client, "/", 2) == [200, 429]
    limiter.exempt(view)
    assert statuses(client, "/", 2) == [200, 200]


def test_a_bound_method_can_be_exempted(app: Flask, buckets: CountingStore) -> None:
    class Views:
        def health(self) -> str:
            return "fine"

    limiter, _, client = make(app, buckets, default_limits=["1/minute"])
    views = Views()
    limiter.exempt(views.health)
    app.add_url_rule("/", "v", views.health)
    assert statuses(client, "/", 3) == [200, 200, 200]


def test_an_exempt_blueprint_frees_what_is_nested_in_it(app: Flask, buckets: CountingStore) -> None:
    limiter, outer, client = make(
        app, buckets, default_limits=["1/minute"], application_limits=["1/minute"]
    )
    inner = Blueprint("inner", __name__)
    inner.add_url_rule("/inner", "v", answer())
    outer.add_url_rule("/outer", "v", answer())
    outer.register_blueprint(inner)
    limiter.exempt(outer)
    app.register_blueprint(outer)
    assert statuses(client, "/inner", 2) + statuses(client, "/outer", 2) == [200] * 4


@pytest.mark.parametrize("target", [None, "view", 7, type("View", (), {})])
def test_what_is_no_view_cannot_be_exempted(limiter: Limiter, target: object) -> None:
    with pytest.raises(ValueError, match="can be exempted"):
        limiter.exempt(target)  # type: ignore[call-overload]  # the point of this test


def test_a_request_filter_skips_everything(app: Flask, buckets: CountingStore) -> None:
    limiter, _, client = make(
        app, buckets, default_limits=["1/minute"], application_limits=["1/minute"]
    )
    app.add_url_rule("/", "v", limiter.limit("1/minute")(answer()))

    @limiter.request_filter
    def is_health_check() -> bool:
        return request.headers.get("User-Agent") == "probe"

    @limiter.request_filter
    def never() -> bool:
        return False

    response = client.get("/", headers={"User-Agent": "probe"})
    assert "X-RateLimit-Limit" not in response.headers
    assert statuses(client, "/", 3, headers={"User-Agent": "probe"}) == [200] * 3
    assert buckets.calls == []
    assert statuses(client, "/", 2) == [200, 429]


def test_limits_can_be_switched_off_and_on_at_run_time(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.add_url_rule("/", "v", limiter.limit("1/minute")(answer()))
    assert limiter.enabled
    limiter.enabled = False
    assert statuses(client, "/", 3) == [200, 200, 200]
    limiter.enabled = True
    assert statuses(client, "/", 2) == [200, 429]
