"""Nothing that a client sends exempts it: methods, headers that override them, upgrades."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask, request
from flask.testing import FlaskClient
from flask.views import MethodView

from flask_bucket import Limiter, Rule
from tests.ext.conftest import answer, statuses

OVERRIDE = {"X-HTTP-Method-Override": "POST"}


def override() -> None:
    """Let a header override the method, after the route was found."""
    request.method = request.headers.get("X-HTTP-Method-Override", request.method)


def test_every_method_that_a_view_serves_drinks_from_one_bucket(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    methods = ["GET", "POST", "OPTIONS", "PROPFIND", "QUERY"]
    app.route("/", methods=methods)(limiter.limit("5/minute")(answer()))
    sent = ["PROPFIND", "HEAD", "options", "QUERY", "post", "GET", "pRoPfInD"]
    assert [client.open("/", method=m).status_code for m in sent] == [200] * 5 + [429] * 2


@pytest.mark.parametrize("option", [{"methods": ["GET"]}, {"per_method": True}])
def test_head_counts_as_get(
    app: Flask, limiter: Limiter, client: FlaskClient, option: dict[str, Any]
) -> None:
    app.route("/", methods=["GET", "POST"])(limiter.limit("2/minute", **option)(answer()))
    assert [client.open("/", method=m).status_code for m in ("GET", "HEAD")] == [200, 200]
    assert [client.open("/", method=m).status_code for m in ("GET", "HEAD")] == [429, 429]


def test_a_method_that_a_hook_overrides_is_the_one_that_is_limited(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.before_request(override)
    limited = limiter.limit("2/minute", methods=["POST"])(lambda: request.method)
    app.route("/", methods=["GET", "POST"])(limited)
    assert statuses(client, "/", 3, headers=OVERRIDE) == [200, 200, 429]
    assert statuses(client, "/", 1, method="POST") == [429]
    assert statuses(client, "/", 3) == [200] * 3


def test_a_class_s_method_is_one_limit_however_it_is_reached(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    class View(MethodView):
        def get(self) -> str:
            return "got"

        @limiter.limit("2/minute")
        def post(self) -> str:
            return "posted"

    app.before_request(override)
    app.add_url_rule("/", view_func=View.as_view("v"))
    assert statuses(client, "/", 1, headers=OVERRIDE) == [200]
    assert statuses(client, "/", 2, method="POST") == [200, 429]
    assert statuses(client, "/", 1, headers=OVERRIDE) == [429]


def test_a_method_that_a_middleware_overrides_is_limited(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    inner = app.wsgi_app

    def middleware(environ: Any, start_response: Any) -> Any:
        environ["REQUEST_METHOD"] = environ.get("HTTP_X_HTTP_METHOD_OVERRIDE", "GET")
        return inner(environ, start_response)

    app.wsgi_app = middleware  # type: ignore[method-assign]  # as Flask's docs say
    app.route("/", methods=["GET", "POST"])(limiter.limit("2/minute", methods=["POST"])(answer()))
    assert statuses(client, "/", 3, headers=OVERRIDE) == [200, 200, 429]


def test_an_upgrade_reaches_no_usual_view_and_is_charged_at_its_own(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    limit = limiter.limit("1/minute")
    app.add_url_rule("/usual", "usual", limit(answer()))
    app.add_url_rule("/socket", "socket", limit(answer()), websocket=True)
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
    assert statuses(client, "/usual", 2, headers=upgrade) == [400, 400]
    assert statuses(client, "/socket", 2, headers=upgrade) == [200, 429]


@pytest.mark.parametrize("path", ["/not-found", "/"])
def test_a_rule_for_a_method_is_charged_for_it_where_no_route_matches(
    app: Flask, path: str
) -> None:
    Limiter(app, application_limits=[Rule("2/minute", methods=["POST"])])
    app.add_url_rule("/", view_func=answer())  # a POST to it is a 405
    client = app.test_client()
    assert statuses(client, path, 3, method="POST")[-1] == 429
    assert 429 not in statuses(client, path, 3)


def test_unmatched_requests_are_counted_per_method_where_a_rule_says_so(app: Flask) -> None:
    Limiter(app, application_limits=[Rule("1/minute", per_method=True)])
    sent = ["GET", "POST", "HEAD", "POST"]
    client = app.test_client()
    assert [client.open("/", method=m).status_code for m in sent] == [404, 404, 429, 429]


def test_a_method_that_only_a_rule_names_is_charged_where_no_route_matches(app: Flask) -> None:
    Limiter(app, application_limits=[Rule("1/minute", methods=["PURGE"])])
    assert statuses(app.test_client(), "/", 2, method="PURGE") == [404, 429]


def test_invented_methods_share_the_bucket_of_get_where_no_route_matches(app: Flask) -> None:
    Limiter(app, application_limits=[Rule("1/minute", per_method=True)])
    sent = ["INVENTED", "GET", "OTHER"]
    client = app.test_client()
    assert [client.open("/", method=m).status_code for m in sent] == [404, 429, 429]
