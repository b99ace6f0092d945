"""Bans in headers, bodies, signals and the log."""

from __future__ import annotations

import logging

import pytest
from flask import Flask

from flask_bucket import Decision, Limiter, Outcome, Rule
from tests.conftest import START
from tests.ext.bans.conftest import DAY, shop
from tests.ext.conftest import CountingStore, answer, statuses


def test_the_refusal_that_begins_a_ban_tells_its_end(app: Flask, buckets: CountingStore) -> None:
    client = shop(app, buckets)
    statuses(client, "/", 3)
    first, second = client.get("/"), client.get("/other")
    for response in (first, second):
        assert response.headers["Retry-After"] == str(DAY)
        assert response.headers["X-RateLimit-Remaining"] == "0"
        assert response.headers["X-RateLimit-Reset"] == str(START // 1_000_000 + DAY)
        assert response.headers["Cache-Control"] == "no-store"
        assert response.get_json()["retryAfterMs"] == DAY * 1000
    assert first.headers["X-RateLimit-Limit"] == "1"
    assert second.headers["X-RateLimit-Limit"] == "5"


def test_bans_are_in_no_rate_header(app: Flask, buckets: CountingStore) -> None:
    app.config["BUCKET_HEADERS"] = ["x-ratelimit", "ietf"]
    client = shop(app, buckets, "1/hour for 1 day")
    for path in ("/other", "/", "/", "/other"):
        response = client.get(path)
        assert "ban" not in str(response.headers)
        assert response.headers["RateLimit"].startswith('"per-minute"')
    assert response.headers["RateLimit"] == f'"per-minute";r=0;t={DAY}'
    assert response.headers["RateLimit-Policy"] == '"per-minute";q=5;w=60'


def test_a_ban_with_few_tokens_left_binds_nobody(app: Flask, buckets: CountingStore) -> None:
    client = shop(app, buckets, "1/hour for 1 day")
    assert client.get("/other").headers["X-RateLimit-Remaining"] == "4"


def test_the_banned_hear_of_no_limit_in_a_dry_run(app: Flask, buckets: CountingStore) -> None:
    app.config["BUCKET_HEADERS"] = "ietf"
    limiter = Limiter(app, redis=buckets, bans="1/hour for 1 day")
    limits: list[str | Rule] = ["1/minute", Rule("1/day", dry_run=True)]
    app.add_url_rule("/", "index", limiter.limit(limits)(answer()))
    client = app.test_client()
    statuses(client, "/", 2)
    assert client.get("/").headers["RateLimit"] == f'"per-minute";r=0;t={DAY}'


def test_the_problem_of_a_ban_is_abnormal_usage(app: Flask, buckets: CountingStore) -> None:
    app.config["BUCKET_ERROR_FORMAT"] = "problem"
    client = shop(app, buckets, "2/hour for 1 day")
    client.get("/")
    assert client.get("/").get_json()["type"].endswith("#quota-exceeded")
    for path, violated in (("/", ["per-minute"]), ("/other", [])):
        problem = client.get(path).get_json()
        assert problem["type"].endswith("#abnormal-usage-detected")
        assert problem["detail"] == f"Try again in {DAY} s."
        assert problem["violated-policies"] == violated  # a ban is no policy of the headers


def test_the_limiters_on_breach_answers_the_banned(app: Flask, buckets: CountingStore) -> None:
    def sorry(decision: Decision) -> tuple[str, int]:
        assert decision.binding is not None
        return f"{decision.binding.kind} {decision.retry_after:g}", 418

    client = shop(app, buckets, "1/hour for 1 day", on_breach=sorry)
    statuses(client, "/", 2)
    response = client.get("/other")
    assert (response.status_code, response.text) == (418, f"ban {DAY}")


def test_the_rules_own_message_answers_those_whom_its_ban_closes_out(
    app: Flask, buckets: CountingStore
) -> None:
    limiter = Limiter(app, redis=buckets)
    limited = limiter.limit("1/minute", ban="1/hour for 1 day", error_message="Too many logins.")
    app.add_url_rule("/", "index", limited(answer()))
    client = app.test_client()
    statuses(client, "/", 2)
    assert client.get("/").get_json()["error"] == "Too many logins."


# What the application hears.


def test_a_ban_is_signalled_once_when_it_begins(
    app: Flask, buckets: CountingStore, began: list[Outcome]
) -> None:
    client = shop(app, buckets)
    statuses(client, "/", 4)
    (outcome,) = began
    assert (outcome.kind, outcome.retry_after, outcome.cost) == ("ban", DAY, 0)
    assert outcome.key == "bucket:{127.0.0.1}:@limiter:!ban"
    statuses(client, "/other", 9)
    assert len(began) == 1


def test_the_log_tells_of_bans_at_most_once_a_second(
    app: Flask, buckets: CountingStore, caplog: pytest.LogCaptureFixture
) -> None:
    client = shop(app, buckets, "1/hour for 1 day")
    caplog.set_level(logging.WARNING, "flask_bucket")
    for n in range(9):
        statuses(client, "/", 3, environ_base={"REMOTE_ADDR": f"198.51.100.{n}"})
    lines = [line for line in caplog.messages if "banned" in line]
    assert lines == [
        f"A client is banned for {DAY} s, after refusals by 1/hour: "
        "bucket:{198.51.100.0}:@limiter:!ban"
    ]


def test_the_log_of_refusals_tells_bans_from_limits(
    app: Flask, buckets: CountingStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "flask_bucket")
    client = shop(app, buckets, "1/hour for 1 day")
    statuses(client, "/", 2)
    caplog.clear()
    client.get("/other")
    key = "bucket:{127.0.0.1}:@limiter:!ban"
    assert caplog.messages == [f"Refused by a ban after 1/hour at other: {key}"]
