"""``flask bucket doctor`` on applications: finds each fault in settings, rules and routes."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask import Blueprint, Flask, g
from flask.views import MethodView
from flask_cors import CORS, cross_origin
from werkzeug.middleware.proxy_fix import ProxyFix

from flask_bucket import Limiter, client_address, request_header
from flask_bucket.cli.app_checks import workers_in
from tests.cli.conftest import codes, examine, get, healthy
from tests.servers import Server


def in_process() -> Flask:
    app = Flask(__name__, static_folder=None)
    Limiter(app, application_limits="5/minute")
    return app


def test_buckets_in_each_process_are_a_warning_and_with_several_workers_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("WEB_CONCURRENCY", raising=False)
    monkeypatch.delenv("GUNICORN_CMD_ARGS", raising=False)
    app = in_process()
    assert (examine(app).code, codes(examine(app), "warning")) == (0, ["FB201"])
    assert (examine(app, "--workers", 4).code, codes(examine(app, "--workers", 4), "error")) == (
        1,
        ["FB201"],
    )
    monkeypatch.setenv("WEB_CONCURRENCY", "2")
    assert codes(examine(app), "error") == ["FB201"]


@pytest.mark.parametrize(
    ("environment", "workers"),
    [
        ({}, 1),
        ({"WEB_CONCURRENCY": "3"}, 3),
        ({"WEB_CONCURRENCY": "many"}, 1),
        ({"GUNICORN_CMD_ARGS": "--bind :80 -w 5"}, 5),
        ({"GUNICORN_CMD_ARGS": "--workers=6", "WEB_CONCURRENCY": "3"}, 6),
        ({"GUNICORN_CMD_ARGS": "--worker-class gthread"}, 1),
    ],
)
def test_the_number_of_workers_is_read_from_the_environment(
    environment: dict[str, str], workers: int
) -> None:
    assert workers_in(environment) == workers


def test_a_proxy_that_is_taken_for_all_clients(valkey: Server) -> None:
    app = healthy(valkey)
    get(app, "/", address="10.0.0.1")
    assert codes(examine(app)) == ["FB202"]
    get(app, "/", address="203.0.113.7")
    assert codes(examine(app)) == []


def test_a_proxy_that_is_said_to_be_there(valkey: Server) -> None:
    app = healthy(valkey)
    said = examine(app, "--behind-proxy")
    assert (said.code, codes(said)) == (1, ["FB202"])
    app.wsgi_app = ProxyFix(app.wsgi_app)  # type: ignore[method-assign]
    assert examine(app, "--behind-proxy").code == 0


def test_proxy_fix_is_found_under_the_limiter_s_own_layer(valkey: Server) -> None:
    app = Flask(__name__)
    app.wsgi_app = ProxyFix(app.wsgi_app)  # type: ignore[method-assign]
    app.config.update(BUCKET_REDIS_URL=valkey.url, BUCKET_TIMEOUT=1)
    Limiter(app)
    assert "FB202" not in codes(examine(app, "--behind-proxy"))


def test_proxy_fix_is_found_under_other_middleware(valkey: Server) -> None:
    class Middleware:
        def __init__(self, application: Any) -> None:
            self.application = application

    app = healthy(valkey)
    app.wsgi_app = Middleware(ProxyFix(app.wsgi_app))  # type: ignore[assignment,method-assign]
    assert examine(app, "--behind-proxy").code == 0


def test_limits_that_are_switched_off(valkey: Server) -> None:
    assert codes(examine(healthy(valkey, BUCKET_ENABLED=False))) == ["FB203"]


def test_limits_that_only_report(valkey: Server) -> None:
    said = examine(healthy(valkey, BUCKET_DRY_RUN=True))
    assert (codes(said), codes(said, "note")[-1]) == ([], "FB204")


def limited_by(valkey: Server, rule: str, **options: Any) -> Flask:
    app = Flask(__name__, static_folder=None)
    settings = {name: options.pop(name) for name in tuple(options) if name.isupper()}
    app.config.update(BUCKET_REDIS_URL=valkey.url, BUCKET_TIMEOUT=1, **settings)
    limiter = Limiter(app)
    app.add_url_rule("/report", view_func=limiter.limit(rule, **options)(report))
    return app


def report() -> str:
    return ""


def test_a_lease_without_the_number_of_workers(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WEB_CONCURRENCY", raising=False)
    assert codes(examine(healthy(valkey, BUCKET_LEASE=0.1))) == ["FB401"]
    assert codes(examine(healthy(valkey, BUCKET_LEASE=0.1, BUCKET_WORKERS=4))) == []


@pytest.mark.parametrize(
    ("rule", "lease", "found"),
    [
        ("20/second burst 500", 0.1, "FB402"),
        ("1000/second burst 10000", 0.1, None),
        ("1000/second burst 2000", 5, "FB403"),
    ],
)
def test_limits_that_a_lease_does_not_fit(
    valkey: Server, rule: str, lease: float, found: str | None
) -> None:
    said = examine(limited_by(valkey, rule, lease=lease, BUCKET_WORKERS=4))
    leases = [code for code in codes(said, "note", "warning") if code in ("FB402", "FB403")]
    assert leases == ([found] if found else [])


def test_a_limit_that_can_never_be_met(valkey: Server) -> None:
    said = examine(limited_by(valkey, "5/minute", cost=6))
    assert (said.code, codes(said)) == (1, ["FB301"])
    assert "GET /report: every request is refused, because it costs 6" in said.out


def test_a_route_without_limits(valkey: Server) -> None:
    app = limited_by(valkey, "5/minute")
    app.add_url_rule("/free", "free", report)
    said = examine(app)
    assert (said.code, codes(said)) == (0, ["FB302"])
    assert "GET /free" in said.out


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("5/second", ["FB303"]),
        ("1/second", ["FB303"]),
        ("100/second burst 150", ["FB303"]),
        ("5/second burst 10", []),
        ("100/minute", []),
        ("1/minute", []),
    ],
)
def test_a_capacity_too_close_to_the_rate(rule: str, expected: list[str], valkey: Server) -> None:
    assert codes(examine(limited_by(valkey, rule))) == expected


def test_each_limiter_is_examined(valkey: Server) -> None:
    app = healthy(valkey)
    Limiter(app, name="api", redis="redis://127.0.0.1:1/0")
    app.config["BUCKET_REDIS_URL"] = None
    said = examine(app)
    about = {f["limiter"] for f in said.data["findings"] if f["code"] == "FB101"}
    assert about == {"bucket", "api"}


def test_headers_that_scripts_of_other_origins_cannot_read_are_found(valkey: Server) -> None:
    app = healthy(valkey, BUCKET_HEADERS=["x-ratelimit", "ietf"])
    app.get("/")(lambda: "fine")
    CORS(app, expose_headers=["retry-after", "X-RateLimit-Limit"], origins=["https://a.example"])
    (finding,) = (f for f in examine(app).data["findings"] if f["level"] == "warning")
    assert finding["code"] == "FB205"
    assert finding["advice"] == (
        "Expose them: CORS(app, expose_headers=['Retry-After', 'X-RateLimit-Limit', "
        "'X-RateLimit-Remaining', 'X-RateLimit-Reset', 'RateLimit-Policy', 'RateLimit'])."
    )
    assert (
        "cannot read X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit-Policy, RateLimit."
        in (finding["what"])
    )


@pytest.mark.parametrize("origins", ["*", ["https://a.example", "https://b.example"]])
@pytest.mark.parametrize("place", ["view", "below the limit", "class", "method"])
def test_refusals_that_the_decorator_of_flask_cors_hides_are_found(
    valkey: Server, place: str, origins: Any
) -> None:
    app = healthy(valkey)
    cors = cross_origin(origins=origins, expose_headers="*")
    limit = Limiter(app, name="views").limit("5/second burst 20")

    class View(MethodView):
        decorators = [cors] if place == "class" else []

        def get(self) -> str:
            raise AssertionError("the doctor calls no view")

    def view() -> str:
        raise AssertionError("the doctor calls no view")

    if place == "method":
        View.get = cors(View.get)  # type: ignore[method-assign]
    views = {"view": cors(limit(view)), "below the limit": limit(cors(view))}
    app.add_url_rule("/", "index", views.get(place) or View.as_view("index"))
    found = [f for f in examine(app).data["findings"] if f["code"] == "FB205"]
    assert found, "by one Limiter or both"
    assert all("cannot read refusals" in finding["what"] for finding in found)
    assert all("Use CORS(app, expose_headers=['Retry-After'" in f["advice"] for f in found)


@pytest.mark.parametrize(("exposed", "found"), [(["X-Other"], ["FB205"]), ("*", [])])
def test_headers_that_the_decorator_hides_beside_cors_are_found(
    valkey: Server, exposed: Any, found: list[str]
) -> None:
    app = healthy(valkey)
    app.get("/")(cross_origin(expose_headers=exposed)(lambda: "fine"))
    CORS(app, expose_headers="*")
    assert codes(examine(app)) == found


def test_cors_that_needs_an_origin_is_found(valkey: Server) -> None:
    app = healthy(valkey)
    app.get("/")(lambda: "fine")
    CORS(app, supports_credentials=True)
    assert codes(examine(app)) == ["FB205"]


def test_what_the_docs_say_about_cors_is_well(valkey: Server) -> None:
    app = healthy(valkey)
    app.get("/")(lambda: "fine")
    said = Path("docs/clients.md").read_text()
    (told,) = re.findall(r"CORS\(app, expose_headers=(\[.*?\])\)", said)
    CORS(app, expose_headers=literal_eval(told))
    assert codes(examine(app)) == []


def test_cors_of_a_blueprint_is_found_too(valkey: Server) -> None:
    app, api = healthy(valkey), Blueprint("api", __name__)
    api.get("/<int:number>")(lambda number: str(number))
    CORS(api)
    app.register_blueprint(api, url_prefix="/api")
    assert codes(examine(app)) == ["FB205"]


NAMES = ["Retry-After", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"]


@pytest.mark.parametrize(
    "options",
    [{"expose_headers": NAMES}, {"expose_headers": "*"}, {"resources": r"/public/*"}],
    ids=["exposed", "all exposed", "elsewhere"],
)
def test_headers_that_nobody_hides_are_well(valkey: Server, options: dict[str, Any]) -> None:
    app = healthy(valkey)
    app.get("/")(lambda: "fine")
    CORS(app, **options)
    assert codes(examine(app)) == []


def the_finding(app: Flask, code: str) -> dict[str, Any]:
    (finding,) = (f for f in examine(app).data["findings"] if f["code"] == code)
    assert isinstance(finding, dict)
    return finding


def test_forgotten_keys_of_flask_limiter_are_found(valkey: Server) -> None:
    app = healthy(valkey, RATELIMIT_DEFAULT="5/minute", RATELIMIT_STORAGE_URI="redis://")
    finding = the_finding(app, "FB206")
    assert "RATELIMIT_DEFAULT" in finding["what"]
    assert finding["advice"] == (
        "Here, for RATELIMIT_DEFAULT, set BUCKET_DEFAULT_LIMITS; "
        "for RATELIMIT_STORAGE_URI, set BUCKET_REDIS_URL."
    )


def test_methods_that_no_route_serves_are_found(valkey: Server) -> None:
    app = healthy(valkey)
    limited = Limiter(app, name="views").limit("5/second burst 20", methods=["GET", "PUT"])
    app.add_url_rule("/", "index", limited(lambda: ""))
    finding = the_finding(app, "FB304")
    assert "'index' names PUT" in finding["what"]
    assert "serve GET" in finding["what"]


def test_methods_that_any_route_of_the_endpoint_serves_are_well(valkey: Server) -> None:
    app = healthy(valkey)
    limited = Limiter(app, name="views").limit("5/second burst 20", methods=["HEAD", "PUT"])
    view = limited(lambda: "")
    app.add_url_rule("/", "index", view)
    app.add_url_rule("/", "index", view, methods=["PUT"])
    assert "FB304" not in codes(examine(app))


def test_a_view_that_is_limited_for_other_methods_is_not_told_to_be_decorated(
    valkey: Server,
) -> None:
    app = Flask(__name__, static_folder=None)
    app.config.update(BUCKET_REDIS_URL=valkey.url, BUCKET_TIMEOUT=1)
    limited = Limiter(app).limit("5/second burst 20", methods=["POST"])
    app.add_url_rule("/login", "login", limited(lambda: ""), methods=["GET", "POST"])
    finding = the_finding(app, "FB302")
    assert "GET /login" in finding["what"]
    assert "decorate" not in finding["advice"]
    assert "methods" in finding["advice"]


def test_hooks_that_run_after_the_key_was_asked_for_are_named(valkey: Server) -> None:
    app = Flask(__name__, static_folder=None)
    app.config.update(BUCKET_REDIS_URL=valkey.url, BUCKET_TIMEOUT=1)

    def plan() -> str:
        return str(g.get("plan"))

    @app.before_request
    def early() -> None:
        g.early = True

    Limiter(app, key_func=plan, default_limits="5/second burst 20")

    @app.before_request
    def load_plan() -> None:
        g.plan = "free"

    blueprint = Blueprint("api", __name__)

    @blueprint.before_request
    def check_key() -> None:
        g.key = True

    blueprint.add_url_rule("/", "index", lambda: "")
    app.register_blueprint(blueprint)
    finding = the_finding(app, "FB305")
    assert finding["level"] == "note"
    assert "(plan) are called before these hooks run" in finding["what"]
    assert "load_plan, check_key" in finding["what"]
    assert "early" not in finding["what"]


@pytest.mark.parametrize("key_func", [client_address, request_header("X-Key"), lambda: "all"])
def test_keys_that_no_hook_sets_are_well(valkey: Server, key_func: Callable[[], str]) -> None:
    app = Flask(__name__, static_folder=None)
    app.config.update(BUCKET_REDIS_URL=valkey.url, BUCKET_TIMEOUT=1)
    Limiter(app, key_func=key_func, default_limits="5/second burst 20")
    app.before_request(lambda: None)
    app.add_url_rule("/", "index", lambda: "")
    assert "FB305" not in codes(examine(app), "note")


def test_the_hook_of_another_limiter_is_no_hook_of_the_application(valkey: Server) -> None:
    app = healthy(valkey)
    Limiter(app, name="first", key_func=lambda: str(g), default_limits="5/second burst 20")
    Limiter(app, name="second")
    app.add_url_rule("/", "index", lambda: "")
    assert "FB305" not in codes(examine(app), "note")
