"""How many requests of a client run at once."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask, request
from flask.testing import FlaskClient
from flask.views import MethodView

from flask_bucket import AtOnce, ConfigError, Limiter, Rule
from tests.ext.at_once.conftest import at_once
from tests.ext.conftest import CountingStore, answer, in_use, nested, statuses


def test_no_more_requests_run_at_once_than_the_limit_says(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.get("/")(limiter.limit("3 at once")(nested(app)))
    assert at_once(client, 3) == [200, 200, 200]
    assert at_once(client, 4) == [200, 200, 200, 429]
    assert in_use(buckets) == 0


def test_requests_one_after_another_are_all_allowed(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    app.get("/")(limiter.limit("1 at once")(answer()))
    assert statuses(client, "/", 5) == [200] * 5
    assert buckets.calls == ["take", "settle"] * 5


def test_a_value_does_what_its_text_does(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    app.get("/")(limiter.limit(AtOnce(2))(nested(app)))
    assert at_once(client, 3) == [200, 200, 429]


def test_each_client_has_slots_of_its_own(app: Flask, limiter: Limiter) -> None:
    def view() -> str:
        other = app.test_client().get("/leaf", headers={"X-Key": request.args["other"]})
        return str(other.status_code)

    rule = Rule("1 at once", key_func=lambda: request.headers["X-Key"], scope="both")
    app.get("/")(limiter.limit(rule)(view))
    app.add_url_rule("/leaf", "leaf", limiter.limit(rule)(answer()))
    client = app.test_client()
    assert client.get("/?other=b", headers={"X-Key": "a"}).text == "200"
    assert client.get("/?other=a", headers={"X-Key": "a"}).text == "429"


@pytest.mark.parametrize("where", ["application_limits", "default_limits"])
def test_settings_limit_requests_at_once(app: Flask, buckets: CountingStore, where: Any) -> None:
    options: dict[str, Any] = {where: "2 at once"}
    Limiter(app, redis=buckets, **options)
    app.get("/")(nested(app))
    assert at_once(app.test_client(), 3) == [200, 200, 429]


def test_a_method_of_a_class_is_limited_at_once(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    class Export(MethodView):
        get = staticmethod(limiter.limit("1 at once")(nested(app)))

    app.add_url_rule("/", view_func=Export.as_view("export"))
    assert at_once(client, 2) == [200, 429]


def test_a_function_returns_how_many(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    app.get("/")(limiter.limit(lambda: request.args.get("plan", "2 at once"))(nested(app)))
    assert at_once(client, 3) == [200, 200, 429]


@pytest.mark.parametrize(
    "options",
    [{"cost": lambda: 2}, {"deduct_when": lambda response: False}, {"lease": 0.5}, {"low": 0.5}],
    ids=list,
)
def test_a_function_returns_no_slots_beside_options_of_tokens(
    app: Flask, limiter: Limiter, client: FlaskClient, options: Any
) -> None:
    app.testing = True
    app.get("/")(limiter.limit(lambda: request.args["plan"], **options)(answer()))
    assert client.get("/?plan=5/second").status_code == 200
    for plan in ("2 at once", "5/second; 2 at once"):
        if plan == "2 at once" or "lease" in options:
            with pytest.raises(ConfigError, match=next(iter(options))):
                client.get("/", query_string={"plan": plan})
        else:
            assert client.get("/", query_string={"plan": plan}).status_code == 200


def test_a_slot_and_a_bucket_of_one_name_are_two(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    rule = Rule(["9/minute", AtOnce(1)], name="same", scope="s")
    app.get("/")(limiter.limit(rule)(answer()))
    assert statuses(client, "/", 2) == [200, 200]


def test_a_name_moves_between_a_rate_and_a_slot(app: Flask, buckets: CountingStore) -> None:
    for n, rule in enumerate(("5/minute", "5 at once", "5/minute")):
        other = Flask("other")
        Limiter(other, redis=buckets, application_limits=Rule(rule, name="n"))
        assert other.test_client().get("/").status_code == 404, n
    assert [key.rpartition(":")[2] for key in buckets.keys] == ["n", "@n", "n"]
