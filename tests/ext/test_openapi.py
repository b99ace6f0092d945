"""What ``limiter.openapi`` adds to a specification."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from flask import Flask

from flask_bucket import ConfigError, Limiter
from tests.ext.conftest import answer

REFUSED = ["Retry-After", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"]


def described(
    app: Flask, limiter: Limiter, paths: dict[str, Any], **others: Any
) -> dict[str, dict[str, Any]]:
    """Return the paths of a specification to which the Limiter added its own."""
    spec = {"openapi": "3.0.3", "paths": paths, **others}
    with app.app_context():
        assert limiter.openapi(spec) is spec
    return paths


def is_limited(operation: dict[str, Any]) -> bool:
    return "429" in operation["responses"]


def test_a_limited_operation_gets_429_and_the_headers(app: Flask, limiter: Limiter) -> None:
    app.add_url_rule("/quote", "quote", limiter.limit("5/second")(answer()))
    paths = described(app, limiter, {"/quote": {"get": {"responses": {"200": {}}}}})
    responses = paths["/quote"]["get"]["responses"]
    refusal = responses["429"]
    assert refusal["description"] == "Too many requests."
    assert list(refusal["headers"]) == REFUSED
    assert refusal["headers"]["Retry-After"] == {
        "description": "Seconds to wait before the next request.",
        "schema": {"type": "integer"},
    }
    assert list(responses["200"]["headers"]) == REFUSED[1:]


def test_a_response_that_slots_alone_limit_has_no_rate_headers(
    app: Flask, limiter: Limiter
) -> None:
    app.add_url_rule("/export", "export", limiter.limit("2 at once")(answer()))
    paths = described(app, limiter, {"/export": {"get": {"responses": {"200": {}}}}})
    responses = paths["/export"]["get"]["responses"]
    assert list(responses["429"]["headers"]) == REFUSED
    assert responses["200"] == {}


def test_errors_stay_as_they_are(app: Flask, limiter: Limiter) -> None:
    app.add_url_rule("/quote", "quote", limiter.limit("5/second")(answer()))
    paths = described(app, limiter, {"/quote": {"get": {"responses": {"404": {}}}}})
    assert paths["/quote"]["get"]["responses"]["404"] == {}


def test_an_operation_without_a_limit_stays_as_it_is(app: Flask, limiter: Limiter) -> None:
    app.add_url_rule("/free", "free", answer())
    app.add_url_rule("/trial", "trial", limiter.limit("5/second", dry_run=True)(answer()))
    paths: dict[str, Any] = {
        path: {"get": {"responses": {}}} for path in ("/free", "/trial", "/elsewhere")
    }
    assert not any(is_limited(item["get"]) for item in described(app, limiter, paths).values())


def test_each_method_is_looked_at_for_itself(app: Flask, limiter: Limiter) -> None:
    view = limiter.limit("5/second", methods=["POST"])(answer())
    app.add_url_rule("/pets/<int:number>", "pets", view, methods=["GET", "POST"])
    item: dict[str, Any] = {"parameters": [], "get": {"responses": {}}, "post": {}}
    described(app, limiter, {"/pets/{petId}": item})
    assert not is_limited(item["get"])
    assert is_limited(item["post"])


@pytest.mark.parametrize(
    "others",
    [{"servers": [{"url": "https://pets.example/v1/"}]}, {"basePath": "/v1", "swagger": "2.0"}],
    ids=["OpenAPI 3", "Swagger 2"],
)
def test_paths_may_be_relative_to_the_server(
    app: Flask, limiter: Limiter, others: dict[str, Any]
) -> None:
    app.add_url_rule("/v1/pets", "pets", limiter.limit("5/second")(answer()))
    paths = described(app, limiter, {"/pets": {"get": {}}}, **others)
    headers = paths["/pets"]["get"]["responses"]["429"]["headers"]
    kind = {"type": "integer"}
    about = headers["X-RateLimit-Limit"]
    assert kind.items() <= (about if "swagger" in others else about["schema"]).items()


def test_words_of_the_author_stay(app: Flask, limiter: Limiter) -> None:
    app.add_url_rule("/quote", "quote", limiter.limit("5/second")(answer()))
    mine = {"description": "Slow down.", "headers": {"Retry-After": {"description": "Wait."}}}
    responses = {429: mine, "200": {"$ref": "#/components/responses/Quote"}}
    described(app, limiter, {"/quote": {"get": {"responses": responses}}})
    assert list(responses) == [429, "200"]
    assert mine["description"] == "Slow down."
    assert mine["headers"]["Retry-After"] == {"description": "Wait."}  # type: ignore[index]
    assert "X-RateLimit-Limit" in mine["headers"]
    assert responses["200"] == {"$ref": "#/components/responses/Quote"}


def test_the_headers_are_those_of_the_configuration(app: Flask) -> None:
    app.config["BUCKET_HEADERS"] = ["ietf"]
    limiter = Limiter(app, default_limits="5/second")
    app.add_url_rule("/quote", "quote", answer())
    paths = described(app, limiter, {"/quote": {"get": {}}})
    headers = paths["/quote"]["get"]["responses"]["429"]["headers"]
    assert list(headers) == ["Retry-After", "RateLimit-Policy", "RateLimit"]
    assert headers["RateLimit"] == {"schema": {"type": "string"}}


def test_the_same_is_added_only_once(app: Flask, limiter: Limiter) -> None:
    app.add_url_rule("/quote", "quote", limiter.limit("5/second")(answer()))
    paths = described(app, limiter, {"/quote": {"get": {"responses": {}}}})
    before = repr(paths)
    assert repr(described(app, limiter, paths)) == before


@pytest.mark.parametrize("spec", [None, "openapi: 3.0.3", {}, {"paths": []}])
def test_anything_else_is_an_error_that_says_what_to_do(
    app: Flask, limiter: Limiter, spec: Any
) -> None:
    with app.app_context(), pytest.raises(ConfigError, match=r"such as spec\.to_dict\(\)"):
        limiter.openapi(spec)


OK = {"description": "fine"}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"paths": {"/quote": None}}, "the path '/quote' is None"),
        ({"paths": {"/quote": {"get": None}}}, "get of the path '/quote' is None"),
        ({"paths": {"/quote": {"get": []}}}, r"get of the path '/quote' is \[\]"),
        ({"paths": {"/quote": {"get": {"responses": None}}}}, "the responses of get .* is None"),
        (
            {"paths": {"/quote": {"get": {"responses": {"200": None}}}}},
            "the response 200 of get of the path '/quote' is None",
        ),
        (
            {"paths": {"/quote": {"get": {"responses": {429: {"headers": None}}}}}},
            "the headers of the response 429 .* is None",
        ),
        ({"paths": {}, "servers": [None]}, r"servers\[0\] is None"),
        ({"paths": {}, "servers": [{"url": None}]}, r"the url of servers\[0\] is None"),
        ({"paths": {}, "servers": {"url": "/api"}}, "servers is {.*Expected a list"),
        ({"paths": {}, "basePath": None}, "basePath is None"),
    ],
)
def test_a_part_of_a_wrong_kind_is_named_and_nothing_is_changed(
    app: Flask, limiter: Limiter, spec: Any, words: str
) -> None:
    app.add_url_rule("/a", "a", limiter.limit("5/second")(answer()))
    spec["paths"] = {"/a": {"get": {"responses": {"200": OK}}}} | spec["paths"]
    before = deepcopy(spec)
    with app.app_context(), pytest.raises(ConfigError, match=words):
        limiter.openapi(spec)
    assert spec == before


def test_extensions_of_a_specification_may_be_anything(app: Flask, limiter: Limiter) -> None:
    app.add_url_rule("/a", "a", limiter.limit("5/second")(answer()))
    paths = {"x-internal": True, "/a": {"x-n": None, "get": {"responses": {"x-n": 5, "200": OK}}}}
    described(app, limiter, paths)
    assert is_limited(paths["/a"]["get"])  # type: ignore[index]  # it is a dictionary
