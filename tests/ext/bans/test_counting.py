"""Which refusals a ban counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Blueprint, Flask, g, request

from flask_bucket import (
    Ban,
    Charge,
    Limiter,
    Outcome,
    RateLimitExceeded,
    client_network,
    limit_exceeded,
    request_header,
)
from tests.ext.bans.conftest import DAY, by_tenant, shop, stocked
from tests.ext.conftest import Clock, CountingStore, answer, statuses


def test_a_request_that_several_limits_refuse_counts_once(
    app: Flask, buckets: CountingStore, began: list[Outcome]
) -> None:
    limiter = Limiter(app, redis=buckets, bans="2/hour for 1 day")
    app.add_url_rule("/", "index", limiter.limit("1/minute; 1/hour; 1/day")(answer()))
    client = app.test_client()
    assert statuses(client, "/", 2) == [200, 429]
    assert began == []
    assert statuses(client, "/", 1) == [429]
    assert len(began) == 1


def test_a_refusal_at_a_later_point_counts_in_the_same_call(
    app: Flask, buckets: CountingStore, began: list[Outcome]
) -> None:
    limiter = Limiter(app, redis=buckets, bans="2/hour for 1 day", application_limits="9/hour")
    app.add_url_rule("/", "index", limiter.limit("1/minute")(answer()))
    client = app.test_client()
    client.get("/")
    buckets.calls.clear()
    assert statuses(client, "/", 2) == [429, 429]
    assert buckets.calls == ["take", "take"] * 2
    assert len(began) == 1


def test_a_request_is_checked_once(app: Flask, buckets: CountingStore, clock: Clock) -> None:
    """What happens to its client while it runs concerns the next one."""
    limiter = Limiter(app, redis=buckets, bans="1/hour for 1 day", application_limits="9/hour")

    def view() -> str:
        with limiter.limit("5/minute", scope="block"):
            return "fine"

    @app.before_request
    def another_request_is_refused() -> None:
        if "inner" not in request.args and "provoke" in request.args:
            app.test_client().get("/small?inner=1")
            app.test_client().get("/small?inner=1")

    app.add_url_rule("/", "index", view)
    app.add_url_rule("/small", "small", limiter.limit("1/day")(answer()))
    client = app.test_client()
    assert client.get("/?provoke=1").status_code == 200
    assert client.get("/").status_code == 429


def test_a_request_within_which_several_blocks_are_refused_counts_once(
    app: Flask, buckets: CountingStore, began: list[Outcome]
) -> None:
    limiter = Limiter(app, redis=buckets, bans="2/hour for 1 day")

    @app.get("/")
    def index() -> str:
        for scope in ("one", "two", "three"):
            try:
                with limiter.limit("1/day", scope=scope):
                    pass
            except Exception:
                continue
        return "fine"

    client = app.test_client()
    assert statuses(client, "/", 2) == [200, 200]
    assert began == []
    client.get("/")
    assert len(began) == 1


def test_a_request_that_a_rules_ban_refuses_counts_for_no_other(
    app: Flask, buckets: CountingStore, began: list[Outcome]
) -> None:
    limiter = Limiter(app, redis=buckets, bans="3/hour for 1 day")
    limited = limiter.limit("1/minute", ban=Ban("1/hour", "1 day", name="own"))
    app.add_url_rule("/", "index", limited(answer()))
    statuses(app.test_client(), "/", 9)
    assert [outcome.limit.name for outcome in began] == ["own"]


@pytest.mark.parametrize("ban", [None, Ban("1/hour", "1 day", name="second")])
def test_a_request_that_a_ban_refuses_in_part_counts_for_none(
    app: Flask, buckets: CountingStore, began: list[Outcome], ban: Ban | None
) -> None:
    limiter = Limiter(app, redis=buckets, bans=Ban("9/hour", "1 day", name="everywhere"))
    first = limiter.limit("1/minute", scope="one", ban=Ban("1/hour", "1 day", name="first"))
    second = limiter.limit("2/day", scope="two", ban=ban)
    refusals = []

    @app.get("/")
    def index() -> str:
        for block in (first, second):
            try:
                with block:
                    pass
            except RateLimitExceeded as error:
                refusals.append(error.decision)
        return "fine"

    client = app.test_client()
    statuses(client, "/", 2)  # the second one begins the first ban
    (everywhere,) = [o for o in refusals[0].outcomes if o.limit.name == "everywhere"]
    assert (everywhere.taken, everywhere.remaining) == (1, 8)
    refusals.clear()
    statuses(client, "/", 2)
    assert [str(refusal.limit) for refusal in refusals] == ["1/hour", "2/day"] * 2
    assert [outcome.limit.name for outcome in began] == ["first"]
    kept = buckets.peek([Charge(everywhere.limit, everywhere.key, 0)]).outcomes[0]
    assert kept.remaining == 8


def test_a_dry_run_limit_counts_for_no_ban_that_is_enforced(
    app: Flask, buckets: CountingStore, began: list[Outcome]
) -> None:
    limiter = Limiter(app, redis=buckets, bans="1/hour for 1 day")
    app.add_url_rule("/", "index", limiter.limit("1/minute", dry_run=True)(answer()))
    assert statuses(app.test_client(), "/", 9) == [200] * 9
    assert began == []


def test_a_ban_counts_refusals_of_limits_by_its_own_key_function_alone(
    app: Flask, buckets: CountingStore, began: list[Outcome]
) -> None:
    """A tenant over its limit must not ban the addresses of its staff."""
    limiter = Limiter(app, redis=buckets, bans="1/hour for 1 day")
    app.add_url_rule("/", "index", limiter.limit("1/minute", key_func=by_tenant)(answer()))
    app.add_url_rule("/other", "other", limiter.limit("5/minute")(answer()))
    client = app.test_client()
    assert statuses(client, "/", 3, headers={"X-Tenant": "ann"}) == [200, 429, 429]
    assert client.get("/other").status_code == 200
    assert began == []


def test_a_ban_may_have_a_key_function_of_its_own(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets, bans=Ban("1/hour", "1 day", key_func=by_tenant))
    app.add_url_rule("/", "index", limiter.limit("1/minute", key_func=by_tenant)(answer()))
    app.add_url_rule("/other", "other", limiter.limit("5/minute")(answer()))
    client = app.test_client()
    tenant = {"X-Tenant": "ann"}
    assert statuses(client, "/", 2, headers=tenant) == [200, 429]
    assert client.get("/other", headers=tenant).status_code == 429
    assert client.get("/other", headers={"X-Tenant": "bob"}).status_code == 200
    assert client.get("/other").status_code == 200  # without a key, nothing is counted


@pytest.mark.parametrize("make", [lambda: client_network(24), lambda: request_header("X-Tenant")])
def test_two_key_functions_for_the_same_part_of_a_request_are_one(
    app: Flask, buckets: CountingStore, began: list[Outcome], make: Callable[[], Any]
) -> None:
    limiter = Limiter(app, redis=buckets, bans=Ban("1/hour", "1 day", key_func=make()))
    app.add_url_rule("/", "index", limiter.limit("1/minute", key_func=make())(answer()))
    statuses(app.test_client(), "/", 2, headers={"X-Tenant": "ann"})
    assert len(began) == 1


def test_an_async_key_function_is_the_same_as_itself(
    app: Flask, buckets: CountingStore, began: list[Outcome]
) -> None:
    async def tenant() -> str:
        return "ann"

    limiter = Limiter(app, redis=buckets, bans=Ban("1/hour", "1 day", key_func=tenant))
    app.add_url_rule("/", "index", limiter.limit("1/minute", key_func=tenant)(answer()))
    statuses(app.test_client(), "/", 2)
    assert len(began) == 1


def test_a_ban_is_checked_at_the_first_point_that_knows_its_client(
    app: Flask, buckets: CountingStore
) -> None:
    ban = Ban("1/hour", "1 day", key_func=lambda: g.get("user"))
    limiter = Limiter(app, redis=buckets, bans=ban, application_limits="99/hour")
    blueprint = Blueprint("api", __name__)

    @blueprint.before_request
    def log_in() -> None:
        g.user = request.args["user"]

    limiter.limit("1/minute", key_func=ban.key_func)(blueprint)
    blueprint.add_url_rule("/", "index", answer())
    app.register_blueprint(blueprint)
    client = app.test_client()
    assert statuses(client, "/?user=ann", 2) == [200, 429]
    assert client.get("/?user=bob").status_code == 200
    outcomes = []
    with limit_exceeded.connected_to(lambda _, decision, **more: outcomes.append(decision.binding)):
        client.get("/?user=ann")
    assert [outcome.kind for outcome in outcomes] == ["ban"]


def test_several_bans_each_count_a_refusal(
    app: Flask, buckets: CountingStore, clock: Clock, began: list[Outcome]
) -> None:
    client = shop(app, buckets, ["2/hour for 1 minute", "3/day for 1 week"])
    statuses(client, "/", 3)
    assert [str(outcome.limit) for outcome in began] == ["2/hour"]
    clock.advance(60)
    assert statuses(client, "/", 2) == [200, 429]
    assert [str(outcome.limit) for outcome in began] == ["2/hour", "2/hour", "3/day"]
    clock.advance(6 * DAY)
    assert client.get("/other").status_code == 429


def test_consume_and_peek_neither_count_nor_obey(
    app: Flask, buckets: CountingStore, began: list[Outcome]
) -> None:
    limiter = Limiter(app, redis=buckets, bans="1/hour for 1 day")
    client = stocked(app, limiter)
    with app.test_request_context():
        for _ in range(9):
            limiter.consume("1/hour", "127.0.0.1")
        assert began == []
    statuses(client, "/", 2)
    with app.test_request_context():
        assert limiter.consume("1/day", "127.0.0.1")
        assert limiter.peek("2/minute", "127.0.0.1")
