"""Blueprints: limited by identity, also when nested, renamed or registered twice."""

from __future__ import annotations

from flask import Blueprint, Flask
from flask.testing import FlaskClient

from flask_bucket import Limiter
from tests.ext.conftest import CountingStore, allowed, answer, statuses


def blueprint(name: str = "bp", path: str = "/") -> Blueprint:
    made = Blueprint(name, __name__)
    made.add_url_rule(path, "v", answer())
    return made


def test_limiting_a_blueprint_returns_it(limiter: Limiter) -> None:
    bp = blueprint()
    assert limiter.limit("1/minute")(bp) is bp
    assert limiter.exempt(bp) is bp


def test_each_endpoint_of_a_blueprint_has_a_bucket(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    bp = blueprint(path="/a")
    bp.add_url_rule("/b", "b", answer())
    limiter.limit("2/minute")(bp)
    app.register_blueprint(bp)
    assert (allowed(client, "/a"), allowed(client, "/b")) == (2, 2)


def test_a_blueprint_may_be_limited_before_and_after_it_is_registered(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    before, after = blueprint("before", "/before"), blueprint("after", "/after")
    limiter.limit("1/minute")(before)
    app.register_blueprint(before)
    app.register_blueprint(after)
    limiter.limit("1/minute")(after)
    assert (allowed(client, "/before"), allowed(client, "/after")) == (1, 1)


def test_a_blueprint_may_be_limited_after_requests(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    bp = blueprint()
    app.register_blueprint(bp)
    assert allowed(client, "/") == 30
    limiter.limit("1/minute")(bp)
    assert allowed(client, "/") == 1


def test_stacked_limits_on_a_blueprint_are_one_call(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    bp = limiter.limit("9/minute")(limiter.limit("2/minute")(blueprint()))
    app.register_blueprint(bp)
    assert allowed(client, "/") == 2
    assert buckets.calls == ["take"] * 3


def test_a_renamed_blueprint_is_limited(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    bp = limiter.limit("1/minute")(blueprint())
    app.register_blueprint(bp, name="renamed")
    assert allowed(client, "/") == 1


def test_a_blueprint_registered_twice_has_buckets_for_each(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    bp = limiter.limit("1/minute")(blueprint(path="/v"))
    app.register_blueprint(bp, url_prefix="/one")
    app.register_blueprint(bp, url_prefix="/two", name="second")
    assert (allowed(client, "/one/v"), allowed(client, "/two/v")) == (1, 1)


def test_two_blueprints_of_one_name_are_told_apart(limiter: Limiter, app: Flask) -> None:
    limited, free = limiter.limit("1/minute")(blueprint(path="/a")), blueprint(path="/b")
    app.register_blueprint(limited)
    app.register_blueprint(free, name="free")
    client = app.test_client()
    assert (allowed(client, "/a"), allowed(client, "/b")) == (1, 30)


def test_nested_blueprints_are_limited_by_the_outer_one(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    outer, middle, inner = Blueprint("o", __name__), Blueprint("m", __name__), blueprint("i")
    middle.register_blueprint(inner, name="renamed")
    outer.register_blueprint(middle)
    app.register_blueprint(limiter.limit("2/minute")(outer), name="also")
    assert allowed(client, "/") == 2


def test_a_nested_blueprint_in_two_places_is_limited_in_both(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    inner = limiter.limit("1/minute")(blueprint("i"))
    for name in ("x", "y"):
        outer = Blueprint(name, __name__, url_prefix=f"/{name}")
        outer.register_blueprint(inner)
        app.register_blueprint(outer)
    assert (allowed(client, "/x/"), allowed(client, "/y/")) == (1, 1)


def test_a_blueprint_limit_spares_the_rest_of_the_application(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.register_blueprint(limiter.limit("1/minute")(blueprint(path="/in")))
    app.add_url_rule("/out", "out", answer())
    assert (allowed(client, "/in"), allowed(client, "/out")) == (1, 30)


def test_an_error_handler_of_the_blueprint_answers_for_it(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    bp = limiter.limit("1/minute")(blueprint())
    bp.register_error_handler(429, lambda error: ("of the blueprint", 429))
    app.register_blueprint(bp)
    client.get("/")
    assert client.get("/").text == "of the blueprint"


def test_conditions_of_a_blueprint_limit_hold(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    bp = Blueprint("bp", __name__)
    bp.add_url_rule("/", "v", lambda: ("fine", 201), methods=["GET", "POST"])
    limiter.limit("1/minute", methods=["POST"], deduct_when=lambda r: r.status_code == 200)(bp)
    app.register_blueprint(bp)
    assert statuses(client, "/", 3) == [201] * 3
    assert buckets.calls == []
    assert statuses(client, "/", 3, method="POST") == [201] * 3
    assert buckets.calls == ["take", "settle"] * 3
