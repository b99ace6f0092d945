"""``flask bucket doctor`` on applications: faults in rules, routes and hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Blueprint, Flask, g

from flask_bucket import Limiter, client_address, request_header
from tests.cli.conftest import codes, examine, healthy, the_finding
from tests.servers import Server


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
