"""Bans, the refusal cache and several workers."""

from __future__ import annotations

from flask import Flask

from flask_bucket import Limiter, Outcome
from flask_bucket.stores.base import WrappingStore
from tests.conftest import START
from tests.ext.bans.conftest import DAY, shop
from tests.ext.conftest import CountingStore, answer, statuses


def test_the_cache_answers_no_refusal_that_a_ban_may_count(
    app: Flask, buckets: CountingStore, began: list[Outcome]
) -> None:
    client = shop(app, WrappingStore(buckets))
    statuses(client, "/", 4)
    assert buckets.calls == ["take"] * 4
    assert len(began) == 1


def test_the_cache_answers_once_the_client_is_banned(app: Flask, buckets: CountingStore) -> None:
    client = shop(app, WrappingStore(buckets))
    statuses(client, "/", 4)
    responses = [client.get(path) for path in ("/", "/other", "/other")]
    assert buckets.calls == ["take"] * 4
    for response, limit in zip(responses, ("1", "5", "5"), strict=True):
        assert response.status_code == 429
        assert response.headers["Retry-After"] == str(DAY)
        assert response.headers["X-RateLimit-Limit"] == limit
        assert response.headers["X-RateLimit-Remaining"] == "0"
        reset = int(response.headers["X-RateLimit-Reset"])
        assert reset == START // 1_000_000 + DAY


def test_the_cache_answers_no_refusal_at_a_later_point_that_a_ban_may_count(
    app: Flask, buckets: CountingStore, began: list[Outcome]
) -> None:
    store = WrappingStore(buckets)
    limiter = Limiter(app, redis=store, bans="4/hour for 1 day", application_limits="9/hour")
    app.add_url_rule("/", "index", limiter.limit("1/minute")(answer()))
    statuses(app.test_client(), "/", 5)
    assert len(began) == 1


def test_the_cache_answers_a_ban_that_began_at_a_later_point(
    app: Flask, buckets: CountingStore
) -> None:
    limiter = Limiter(
        app, redis=WrappingStore(buckets), bans="1/hour for 1 day", application_limits="9/hour"
    )
    app.add_url_rule("/", "index", limiter.limit("1/minute")(answer()))
    client = app.test_client()
    assert statuses(client, "/", 5) == [200, 429, 429, 429, 429]
    assert buckets.calls == ["take", "take"] * 2 + ["take"]


def test_limits_of_applications_without_bans_are_answered_from_the_cache(
    app: Flask, buckets: CountingStore
) -> None:
    client = shop(app, WrappingStore(buckets), ())
    statuses(client, "/", 9)
    assert buckets.calls == ["take"] * 2


def test_refusals_in_several_workers_are_all_counted(
    buckets: CountingStore, began: list[Outcome]
) -> None:
    clients = [shop(Flask(f"worker_{n}"), WrappingStore(buckets), "9/hour for 1 day") for n in "ab"]
    clients[0].get("/")
    for n in range(9):
        assert began == []
        assert clients[n % 2].get("/").status_code == 429
    assert len(began) == 1
    assert [client.get("/other").status_code for client in clients] == [429, 429]


def test_refusals_of_several_limiters_of_one_store_are_counted_by_each_ones_own_ban(
    app: Flask, buckets: CountingStore, began: list[Outcome]
) -> None:
    store = WrappingStore(buckets)
    one = Limiter(app, redis=store, bans="2/hour for 1 day", name="one")
    two = Limiter(app, redis=store, bans="2/hour for 1 day", name="two")
    app.add_url_rule("/1", "one", one.limit("1/minute")(answer()))
    app.add_url_rule("/2", "two", two.limit("1/minute")(answer()))
    client = app.test_client()
    statuses(client, "/1", 3)
    assert [outcome.key for outcome in began] == ["bucket/one:{127.0.0.1}:@limiter:!ban"]
    assert client.get("/2").status_code == 200
