"""When a ban begins, when it is over, and what it closes."""

from __future__ import annotations

from flask import Flask, request

from flask_bucket import Limiter, Outcome
from tests.ext.bans.conftest import DAY, shop, stocked
from tests.ext.conftest import Clock, CountingStore, answer, statuses


def test_a_client_is_out_after_as_many_refusals_as_the_ban_allows(
    app: Flask, buckets: CountingStore
) -> None:
    client = shop(app, buckets)
    assert statuses(client, "/", 3) == [200, 429, 429]
    assert client.get("/other").status_code == 200
    assert client.get("/").status_code == 429  # the third refusal
    assert client.get("/other").status_code == 429


def test_a_client_is_out_for_exactly_as_long_as_the_ban_says(
    app: Flask, buckets: CountingStore, clock: Clock
) -> None:
    client = shop(app, buckets)
    statuses(client, "/", 4)
    clock.now += DAY * 1_000_000 - 1
    assert client.get("/other").status_code == 429
    clock.now += 1
    assert client.get("/other").status_code == 200


def test_hammering_does_not_extend_a_ban(app: Flask, buckets: CountingStore, clock: Clock) -> None:
    client = shop(app, buckets)
    statuses(client, "/", 4)
    for _ in range(24):
        clock.advance(3_599)
        assert statuses(client, "/", 2) == [429, 429]
    clock.advance(24)
    assert client.get("/other").status_code == 200


def test_after_a_ban_the_next_refusal_begins_another(
    app: Flask, buckets: CountingStore, clock: Clock, began: list[Outcome]
) -> None:
    client = shop(app, buckets)
    statuses(client, "/", 4)
    clock.advance(DAY)
    assert statuses(client, "/", 2) == [200, 429]
    assert client.get("/other").status_code == 429
    assert len(began) == 2


def test_refusals_are_forgotten_at_the_rate_of_the_ban(
    app: Flask, buckets: CountingStore, clock: Clock, began: list[Outcome]
) -> None:
    client = shop(app, buckets)
    for _ in range(20):
        statuses(client, "/", 2)
        clock.advance(1_200)
    assert began == []


def test_another_client_is_not_concerned(app: Flask, buckets: CountingStore) -> None:
    client = shop(app, buckets)
    statuses(client, "/", 4)
    other = {"REMOTE_ADDR": "198.51.100.7"}
    assert client.get("/", environ_base=other).status_code == 200


# What is open to the banned.


def test_views_that_charge_nothing_stay_open(app: Flask, buckets: CountingStore) -> None:
    client = shop(app, buckets)
    statuses(client, "/", 4)
    assert client.get("/free").status_code == 200
    assert client.options("/other").status_code == 200


def test_filtered_and_exempt_requests_stay_open(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets, bans="1/hour for 1 day", default_limits="1/minute")
    app.add_url_rule("/", "index", answer())
    app.add_url_rule("/exempt", "exempt", limiter.exempt(answer()))
    limiter.request_filter(lambda: request.args.get("let") == "me")
    client = app.test_client()
    assert statuses(client, "/", 2) == [200, 429]
    assert client.get("/exempt").status_code == client.get("/?let=me").status_code == 200


def test_a_limit_that_leaves_the_request_out_does_not_look_for_bans(
    app: Flask, buckets: CountingStore
) -> None:
    limiter = Limiter(app, redis=buckets, bans="3/hour for 1 day")
    client = stocked(app, limiter)
    app.add_url_rule("/skip", "skip", limiter.limit("1/day", exempt_when=lambda: True)(answer()))
    statuses(client, "/", 4)
    assert client.get("/skip").status_code == 200


def test_a_cost_of_nothing_is_a_charge(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets, bans="1/hour for 1 day")
    app.add_url_rule("/", "index", limiter.limit("1/minute")(answer()))
    app.add_url_rule("/look", "look", limiter.limit("1/minute", cost=0)(answer()))
    client = app.test_client()
    assert client.get("/look").status_code == 200
    assert statuses(client, "/", 2) == [200, 429]
    assert client.get("/look").status_code == 429
