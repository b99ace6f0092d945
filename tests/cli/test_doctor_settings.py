"""``flask bucket doctor`` on applications: faults in settings."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from werkzeug.middleware.proxy_fix import ProxyFix

from flask_bucket import Limiter
from flask_bucket.cli.app_checks import workers_in
from tests.cli.conftest import codes, examine, get, healthy, the_finding
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


def test_forgotten_keys_of_flask_limiter_are_found(valkey: Server) -> None:
    app = healthy(valkey, RATELIMIT_DEFAULT="5/minute", RATELIMIT_STORAGE_URI="redis://")
    finding = the_finding(app, "FB206")
    assert "RATELIMIT_DEFAULT" in finding["what"]
    assert finding["advice"] == (
        "Here, for RATELIMIT_DEFAULT, set BUCKET_DEFAULT_LIMITS; "
        "for RATELIMIT_STORAGE_URI, set BUCKET_REDIS_URL."
    )
