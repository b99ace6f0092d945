"""Dry-run limits beside limits that refuse."""

from __future__ import annotations

from flask import Flask
from flask.testing import FlaskClient

from flask_bucket import Charge, Limit, Limiter, Rule
from tests.ext.conftest import CountingStore, answer, statuses


def test_a_refusal_gives_no_tokens_back_that_a_dry_run_limit_had_not(
    app: Flask, buckets: CountingStore, client: FlaskClient
) -> None:
    limiter = Limiter(app, redis=buckets, application_limits=Rule("2/hour", dry_run=True))
    app.get("/")(limiter.limit("3/hour")(answer()))
    assert statuses(client, "/", 4) == [200, 200, 200, 429]
    (dry,) = {key for key in buckets.keys if "application" in key}
    (outcome,) = buckets.peek([Charge(Limit.parse("2/hour"), dry, 0)]).outcomes
    assert outcome.remaining == 0
