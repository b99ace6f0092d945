"""Limits within a view: a block, or a limited function that the view calls."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from flask_bucket import ConfigError, Limiter, RateLimitExceeded
from tests.ext.conftest import CountingStore, answer, statuses


@pytest.fixture(params=["block", "function"])
def importing(request: pytest.FixtureRequest, limiter: Limiter) -> Any:
    """The function or block that a view calls, limited to one a minute."""
    if request.param == "function":
        return limiter.limit("1/minute")(answer("imported"))

    def in_a_block() -> str:
        with limiter.limit("1/minute", scope="import"):
            return "imported"

    return in_a_block


@pytest.fixture
def catching(app: Flask, limiter: Limiter, importing: Any) -> None:
    """A limited view that catches the refusal of what it calls."""

    @app.get("/")
    @limiter.limit("3/hour")
    def view() -> str:
        try:
            return str(importing())
        except RateLimitExceeded:
            return "later"


def test_a_refusal_within_a_view_is_a_429(app: Flask, client: FlaskClient, importing: Any) -> None:
    app.get("/")(lambda: importing())
    assert statuses(client, "/", 2) == [200, 429]
    assert client.get("/").headers["X-RateLimit-Limit"] == "1"


@pytest.mark.usefixtures("catching")
def test_a_view_that_catches_a_refusal_pays_its_own_limit(client: FlaskClient) -> None:
    assert statuses(client, "/", 8) == [200, 200, 200] + [429] * 5


@pytest.mark.usefixtures("catching")
def test_a_view_that_catches_a_refusal_is_answered_as_if_there_was_none(
    client: FlaskClient,
) -> None:
    client.get("/")
    response = client.get("/")
    assert response.text == "later"
    assert response.headers["X-RateLimit-Limit"] == "3"
    assert {"Retry-After", "Cache-Control"}.isdisjoint(response.headers.keys())


def test_a_refusal_within_a_view_that_reaches_the_client_takes_the_view_s_tokens(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore, importing: Any
) -> None:
    app.get("/")(limiter.limit("3/hour")(lambda: importing()))
    assert statuses(client, "/", 4) == [200, 429, 429, 429]
    with app.app_context():
        assert len(buckets) == 2
    # Three were allowed at the decorator, and the fourth was refused there.
    assert client.get("/").headers["X-RateLimit-Limit"] == "3"


def test_blocks_of_one_scope_share_a_bucket_over_endpoints(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    def view() -> str:
        with limiter.limit("2/minute", scope="import"):
            return "imported"

    app.add_url_rule("/a", "a", view)
    app.add_url_rule("/b", "b", view)
    assert [client.get(path).status_code for path in ("/a", "/b", "/a")] == [200, 200, 429]


def test_one_limit_object_may_be_entered_by_many_threads(
    app: Flask, limiter: Limiter, buckets: CountingStore
) -> None:
    limit = limiter.limit("5/minute", scope="import")

    @app.get("/")
    def view() -> str:
        with limit:
            return "imported"

    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(app.test_client().get("/").status_code))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [200] * 5 + [429] * 3


def test_a_block_needs_a_scope(app: Flask, limiter: Limiter) -> None:
    with (
        app.test_request_context("/"),
        pytest.raises(ConfigError, match="needs a scope"),
        limiter.limit("1/minute"),
    ):
        pass


def test_a_block_outside_of_requests_is_free(app: Flask, limiter: Limiter) -> None:
    for _ in range(3):
        with limiter.limit("1/minute", scope="import"):
            pass


def test_limited_functions_of_one_name_have_buckets_of_their_own(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    one, other = (limiter.limit("1/minute")(answer()) for _ in range(2))
    app.get("/")(lambda: other() + one())
    assert statuses(client, "/", 2) == [200, 429]
    scopes = [key.split(":")[2].rpartition("view")[2] for key in buckets.keys]
    assert scopes == ["-2", "", "-2"], "numbered as they were decorated, not as they are called"


def test_a_function_that_is_limited_twice_has_two_buckets(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    function = answer()
    one, other = (limiter.limit("1/minute")(function) for _ in range(2))
    app.get("/")(lambda: one() + other())
    assert statuses(client, "/", 2) == [200, 429]


def test_stacked_limits_of_a_function_keep_its_name(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    function = limiter.limit("9/hour")(limiter.limit("1/minute")(answer()))
    app.get("/")(lambda: function())
    client.get("/")
    assert [key.split(":")[2].rpartition("view")[2] for key in buckets.keys] == ["", ""]


def test_the_order_in_which_applications_are_made_names_no_bucket(buckets: CountingStore) -> None:
    """Each worker of a dispatcher makes them in the order of its own requests."""
    limiter = Limiter(redis=buckets)

    def create() -> Flask:
        app = Flask("made")
        limiter.init_app(app)
        function = limiter.limit("2/minute")(answer())
        app.add_url_rule("/", "view", lambda: function())
        return app

    for app in [create() for _ in range(2)]:
        app.test_client().get("/")
    assert len(set(buckets.keys)) == 1


def test_a_function_that_each_request_makes_keeps_its_bucket(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    app.get("/")(lambda: limiter.limit("2/minute")(answer())())
    assert statuses(client, "/", 3) == [200, 200, 429]
