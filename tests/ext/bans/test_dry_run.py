"""Bans that only report."""

from __future__ import annotations

import pytest
from flask import Flask

from flask_bucket import Ban, Charge, Decision, Limiter, Outcome, limit_exceeded
from tests.ext.bans.conftest import shop
from tests.ext.conftest import CountingStore, answer, statuses


def test_a_dry_run_counts_in_buckets_of_its_own_and_refuses_nothing(
    app: Flask,
    buckets: CountingStore,
    began: list[Outcome],
    caplog: pytest.LogCaptureFixture,
) -> None:
    app.config["BUCKET_DRY_RUN"] = True
    client = shop(app, buckets, "2/hour for 1 day")
    reported: list[Decision] = []
    with limit_exceeded.connected_to(lambda _, decision, **more: reported.append(decision)):
        assert statuses(client, "/", 5) == [200] * 5
    assert [[o.kind for o in d.outcomes if not o.allowed] for d in reported] == [
        ["rate"],
        ["rate", "ban"],  # begins
        ["rate", "ban"],
        ["rate", "ban"],
    ]
    assert {key for key in buckets.keys if "!" in key} == {
        "bucket:{127.0.0.1}:@limiter@dry-run:!ban"
    }
    assert began == []
    assert "Dry run: 1/minute would have refused a request." in caplog.text


def test_a_dry_run_counts_a_request_once(app: Flask, buckets: CountingStore) -> None:
    app.config["BUCKET_DRY_RUN"] = True
    limiter = Limiter(app, redis=buckets, bans="9/hour for 1 day", application_limits="1/hour")
    app.add_url_rule("/", "index", limiter.limit("1/minute")(answer()))
    statuses(app.test_client(), "/", 3)
    assert refusals_left(buckets) == 7


def test_a_dry_run_counts_a_refusal_at_a_later_point(app: Flask, buckets: CountingStore) -> None:
    app.config["BUCKET_DRY_RUN"] = True
    limiter = Limiter(app, redis=buckets, bans="9/hour for 1 day", application_limits="9/hour")
    app.add_url_rule("/", "index", limiter.limit("1/minute")(answer()))
    statuses(app.test_client(), "/", 3)
    assert refusals_left(buckets) == 7


def refusals_left(buckets: CountingStore) -> int:
    """Return what is left of 9/hour in a dry run."""
    key = "bucket:{127.0.0.1}:@limiter@dry-run:!ban"
    return buckets.peek([Charge(Ban("9/hour for 1 day").after, key, 0)]).outcomes[0].remaining
