"""Views and functions that must be awaited."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from flask import Flask, Response, request
from flask.testing import FlaskClient
from flask.views import MethodView

from flask_bucket import Decision, Limiter
from tests.ext.conftest import Clock, CountingStore, answer, remaining, statuses


async def key() -> str:
    await asyncio.sleep(0)
    return request.args.get("user", "none")


async def rule() -> str:
    await asyncio.sleep(0)
    return "4/minute"


async def cost() -> int:
    await asyncio.sleep(0)
    return 2


def test_an_async_view_is_limited(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    @app.get("/<name>")
    @limiter.limit("2/minute")
    async def view(name: str) -> str:
        await asyncio.sleep(0)
        return name

    assert client.get("/x").text == "x"
    assert statuses(client, "/x", 2) == [200, 429]


def test_stacked_limits_on_an_async_view_are_one_call(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    @app.get("/")
    @limiter.limit("9/minute")
    @limiter.limit("1/minute")
    async def view() -> str:
        return "fine"

    assert statuses(client, "/", 2) == [200, 429]
    assert buckets.calls == ["take", "take"]


def test_an_async_method_of_a_view_is_limited(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    class Items(MethodView):
        @limiter.limit("1/minute")
        async def get(self) -> str:
            return "got"

    app.add_url_rule("/", view_func=Items.as_view("items"))
    assert statuses(client, "/", 2) == [200, 429]


def test_functions_given_to_a_limit_may_be_async_on_any_view(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    limit = limiter.limit(rule, key_func=key, cost=cost)

    async def awaited() -> str:
        return "fine"

    app.add_url_rule("/plain", "plain", limit(answer()))
    app.add_url_rule("/awaited", "awaited", limit(awaited))
    for path in ("/plain", "/awaited"):
        assert statuses(client, f"{path}?user=a", 3) == [200, 200, 429]
        assert statuses(client, f"{path}?user=b", 1) == [200]


def test_conditions_may_be_async(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    async def is_staff() -> bool:
        return "staff" in request.args

    async def failed(response: Response) -> bool:
        return response.status_code != 200

    async def message() -> str:
        return "Later."

    async def teapot(decision: Decision) -> Response:
        return Response("teapot", 418)

    async def view() -> tuple[str, int]:
        return "", int(request.args.get("status", 200))

    exempt = limiter.limit("1/minute", exempt_when=is_staff, error_message=message)(view)
    app.add_url_rule("/exempt", "exempt", exempt)
    app.add_url_rule("/failed", "failed", limiter.limit("1/minute", deduct_when=failed)(view))
    app.add_url_rule("/breach", "breach", limiter.limit("1/minute", on_breach=teapot)(view))
    assert statuses(client, "/exempt?staff", 3) == [200] * 3
    assert statuses(client, "/exempt", 1) == [200]
    response = client.get("/exempt")
    assert response.json is not None
    assert response.json["error"] == "Later."
    assert statuses(client, "/failed", 3) == [200] * 3
    assert statuses(client, "/failed?status=401", 2) == [401, 429]
    assert statuses(client, "/breach", 2) == [200, 418]


def test_the_limiters_own_functions_may_be_async(app: Flask, buckets: CountingStore) -> None:
    async def teapot(decision: Decision) -> Response:
        return Response("teapot", 418)

    async def is_probe() -> bool:
        return "probe" in request.args

    limiter = Limiter(app, redis=buckets, key_func=key, on_breach=teapot, application_limits=[rule])
    limiter.request_filter(is_probe)

    async def view() -> str:
        return "fine"

    app.add_url_rule("/v", "v", limiter.limit("1/minute")(view))
    app.add_url_rule("/plain", "plain", answer())
    client = app.test_client()
    assert statuses(client, "/v?user=a", 2) == [200, 418]
    assert statuses(client, "/v?user=a&probe", 1) == [200]
    assert statuses(client, "/plain?user=a", 4) == [200, 200, 200, 418]


def test_a_view_behind_an_async_view_sees_its_decision(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    seen: list[Any] = []

    @app.get("/")
    @limiter.limit(rule)
    async def view() -> str:
        seen.append(limiter.current)
        limiter.settle(3)
        return "fine"

    assert remaining(client, "/") == 1
    assert seen[0].allowed


def test_an_async_plain_function_is_limited_within_a_request(
    app: Flask, limiter: Limiter, client: FlaskClient, clock: Clock
) -> None:
    @limiter.limit("1/minute")
    async def costly() -> str:
        return "done"

    @app.get("/")
    async def view() -> str:
        return await costly()

    assert statuses(client, "/", 2) == [200, 429]
    assert asyncio.run(costly()) == "done", "and free elsewhere"


def test_functions_of_a_block_within_an_async_view_may_be_async(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    @app.get("/")
    async def view() -> str:
        with limiter.limit(rule, scope="block", key_func=key, cost=cost):
            return "fine"

    assert statuses(client, "/?user=a", 3) == [200, 200, 429]
    assert statuses(client, "/?user=b", 1) == [200]


def test_functions_of_a_plain_function_within_an_async_view_may_be_async(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    limited = limiter.limit(rule, key_func=key, cost=cost)(answer())

    @app.get("/")
    async def view() -> str:
        return limited()

    assert statuses(client, "/?user=a", 3) == [200, 200, 429]
    assert statuses(client, "/?user=b", 1) == [200]


def test_an_error_of_an_async_function_within_an_async_view_surfaces(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    async def fails() -> str:
        raise LookupError("nobody")

    @app.get("/")
    async def view() -> str:
        with limiter.limit("1/minute", scope="block", key_func=fails):
            return "fine"

    app.testing = True
    with pytest.raises(LookupError, match="nobody"):
        client.get("/")


def test_filters_and_conditions_may_be_async_in_an_async_hook(
    app: Flask, buckets: CountingStore, client: FlaskClient
) -> None:
    limiter = Limiter(redis=buckets)

    async def is_staff() -> bool:
        return "staff" in request.args

    async def failed(response: Response) -> bool:
        return response.status_code != 200

    @app.before_request
    async def early() -> None:
        with limiter.limit("1/minute", scope="early", deduct_when=failed):
            await asyncio.sleep(0)

    limiter.request_filter(is_staff)
    limiter.init_app(app)
    assert statuses(client, "/?staff", 2) == [404, 404]
    assert statuses(client, "/", 2) == [404, 429]
