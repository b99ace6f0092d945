"""``flask bucket doctor`` on applications: headers that flask-cors hides."""

from __future__ import annotations

import re
from ast import literal_eval
from pathlib import Path
from typing import Any

import pytest
from flask import Blueprint
from flask.views import MethodView
from flask_cors import CORS, cross_origin

from flask_bucket import Limiter
from tests.cli.conftest import codes, examine, healthy
from tests.servers import Server


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
