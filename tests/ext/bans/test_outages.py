"""Bans while the store is out of reach."""

from __future__ import annotations

from typing import Any

from flask import Flask

from flask_bucket import Decision, Limiter, Outcome, StoreUnavailable
from flask_bucket.stores.base import WrappingStore
from tests.ext.bans.conftest import shop
from tests.ext.conftest import CountingStore, answer, statuses


class Away(WrappingStore):
    """A store that can be out of reach, and that the application does not wrap less for."""

    away = False

    def take(self, *arguments: Any, **more: Any) -> Decision:
        if self.away:
            raise StoreUnavailable("away")
        return super().take(*arguments, **more)


def test_there_are_no_bans_in_an_outage_under_allow(app: Flask, buckets: CountingStore) -> None:
    store = Away(buckets)
    app.config["BUCKET_RECOVERY_INTERVAL"] = 1e-9
    client = shop(app, store)
    statuses(client, "/", 4)
    store.away = True
    app.extensions["flask_bucket"]["bucket"].store.reset("198.51.100.1")  # forgets refusals
    assert client.get("/other").status_code == 200


def test_a_503_counts_for_no_ban(app: Flask, buckets: CountingStore, began: list[Outcome]) -> None:
    store = Away(buckets)
    app.config.update(BUCKET_ON_ERROR="deny", BUCKET_RECOVERY_INTERVAL=1e-9)
    client = shop(app, store, "1/hour for 1 day")
    store.away = True
    assert statuses(client, "/", 5) == [503] * 5
    store.away = False
    assert client.get("/other").status_code == 200
    assert began == []


def test_bans_under_local_end_with_the_outage(
    app: Flask, buckets: CountingStore, began: list[Outcome]
) -> None:
    store = Away(buckets)
    app.config.update(BUCKET_ON_ERROR="local", BUCKET_RECOVERY_INTERVAL=1e-9)
    client = shop(app, store, "2/hour for 1 day")
    store.away = True
    assert statuses(client, "/", 3) == [200, 429, 429]
    assert client.get("/other").status_code == 429
    assert [outcome.taken_from for outcome in began] == ["local"]
    store.away = False
    assert client.get("/other").status_code == 200


def test_a_refusal_at_a_later_point_counts_under_local_too(
    app: Flask, buckets: CountingStore, began: list[Outcome]
) -> None:
    store = Away(buckets)
    store.away = True
    app.config.update(BUCKET_ON_ERROR="local", BUCKET_RECOVERY_INTERVAL=1e-9)
    limiter = Limiter(app, redis=store, bans="2/hour for 1 day", application_limits="9/hour")
    app.add_url_rule("/", "index", limiter.limit("1/minute")(answer()))
    statuses(app.test_client(), "/", 3)
    assert len(began) == 1
