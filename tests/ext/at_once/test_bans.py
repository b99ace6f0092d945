"""Bans beside limits on requests at once."""

from __future__ import annotations

from flask import Flask, Response
from flask.testing import FlaskClient

from flask_bucket import Limiter, Rule
from tests.ext.conftest import CountingStore, answer, in_use, statuses, words


def test_a_rule_s_ban_counts_the_refusals_of_its_slots(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    rule = Rule("1 at once", ban="2/hour for 1 day")
    app.add_url_rule("/", "view", limiter.limit(rule)(lambda: Response(words())))
    with client.get("/"):
        assert statuses(client, "/", 2) == [429, 429]
    refused = client.get("/")
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "86400")


def test_a_ban_of_the_limiter_counts_no_refusal_for_want_of_a_slot(
    app: Flask, buckets: CountingStore
) -> None:
    limiter = Limiter(app, redis=buckets, bans="1/hour for 1 day")
    app.add_url_rule("/", "view", limiter.limit("1 at once")(lambda: Response(words())))
    client = app.test_client()
    with client.get("/"):
        assert statuses(client, "/", 3) == [429] * 3
    assert client.get("/").data == b"one two"


def test_a_banned_client_holds_nothing(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets, bans="1/hour for 1 day", application_limits="5 at once")
    app.add_url_rule("/", "view", limiter.limit("1/hour; 3 at once")(answer()))
    assert statuses(app.test_client(), "/", 4) == [200, 429, 429, 429]
    assert in_use(buckets) == 0
