"""A ban on a rule counts and closes that rule alone."""

from __future__ import annotations

import pytest
from flask import Flask, request

from flask_bucket import Ban, ConfigError, Limiter, Outcome, Rule
from tests.ext.bans.conftest import by_tenant
from tests.ext.conftest import Clock, CountingStore, allowed, answer, statuses


def test_a_ban_on_a_rule_closes_that_rule_alone(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets)
    limited = limiter.limit("1/minute", ban="2/hour for 1 day")
    app.add_url_rule("/login", "login", limited(answer()), methods=["POST"])
    app.add_url_rule("/", "index", limiter.limit("9/minute")(answer()))
    client = app.test_client()
    assert statuses(client, "/login", 3, method="POST") == [200, 429, 429]
    assert client.get("/").status_code == 200


def test_a_ban_on_a_rule_counts_that_rules_refusals_alone(
    app: Flask, buckets: CountingStore, clock: Clock
) -> None:
    limiter = Limiter(app, redis=buckets)
    view = limiter.limit("1/minute")(limiter.limit("9/minute", ban="1/hour for 1 day")(answer()))
    app.add_url_rule("/", "index", view)
    client = app.test_client()
    statuses(client, "/", 9)
    clock.advance(60)
    assert client.get("/").status_code == 200


def test_a_ban_on_a_rule_has_the_key_of_the_rule(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets)
    limited = limiter.limit("1/minute", key_func=by_tenant, ban="1/hour for 1 day")
    app.add_url_rule("/", "index", limited(answer()))
    statuses(app.test_client(), "/", 2, headers={"X-Tenant": "ann"})
    assert "bucket:{ann}:index:!ban" in buckets.keys


def test_a_ban_on_a_rule_may_close_it_to_others_than_it_counts(
    app: Flask, buckets: CountingStore
) -> None:
    limiter = Limiter(app, redis=buckets)
    ban = Ban("1/hour", "1 day", key_func=by_tenant)
    app.add_url_rule("/", "index", limiter.limit("1/minute", ban=ban)(answer()))
    client = app.test_client()
    assert statuses(client, "/", 2, headers={"X-Tenant": "ann"}) == [200, 429]
    other = {"REMOTE_ADDR": "198.51.100.7"}
    assert client.get("/", headers={"X-Tenant": "ann"}, environ_base=other).status_code == 429
    assert client.get("/", environ_base=other).status_code == 200


def test_endpoints_of_one_scope_share_a_ban(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets)
    shared = limiter.shared_limit("1/minute", "login", ban="1/hour for 1 day")
    app.add_url_rule("/a", "a", shared(answer()))
    app.add_url_rule("/b", "b", shared(answer()))
    statuses(app.test_client(), "/a", 2)
    with app.app_context():
        assert "bucket:{127.0.0.1}:login:!ban" in buckets.keys
    assert app.test_client().get("/b").status_code == 429


def test_a_rule_of_several_limits_has_one_ban(app: Flask, buckets: CountingStore) -> None:
    rule = Rule("1/minute; 1/hour", ban="2/day for 1 week")
    limiter = Limiter(app, redis=buckets)
    app.add_url_rule("/", "index", limiter.limit(rule)(answer()))
    statuses(app.test_client(), "/", 3)
    assert {key for key in buckets.keys if "!" in key} == {"bucket:{127.0.0.1}:index:!ban"}


def test_bans_of_stacked_rules_do_not_meet(
    app: Flask, buckets: CountingStore, began: list[Outcome]
) -> None:
    limiter = Limiter(app, redis=buckets)
    rules = [Rule("1/minute", ban="2/day for 1 week"), Rule("9/day", ban="2/day for 1 week")]
    app.add_url_rule("/", "index", limiter.limit(rules)(answer()))
    statuses(app.test_client(), "/", 9)
    assert [outcome.limit.name for outcome in began] == ["ban"]
    assert {key.partition("!")[2] for key in buckets.keys if "!" in key} == {"ban", "ban-2"}


def test_a_limit_that_is_named_ban_does_not_meet_a_ban(
    app: Flask, buckets: CountingStore, began: list[Outcome]
) -> None:
    limiter = Limiter(app, redis=buckets)
    limited = limiter.limit("9/minute", name="ban", ban="1/hour for 1 day")
    app.add_url_rule("/", "index", limited(answer()))
    assert allowed(app.test_client(), "/") == 9
    assert len(began) == 1


def test_a_rule_with_a_ban_that_is_none_is_refused_where_it_is_written() -> None:
    with pytest.raises(ConfigError, match="is not a ban"):
        Rule("1/minute", ban="1/hour")


def test_a_slots_refusal_counts_for_the_ban_of_its_own_rule_alone(
    app: Flask, buckets: CountingStore, began: list[Outcome]
) -> None:
    limiter = Limiter(app, redis=buckets, bans=Ban("1/hour", "1 day", name="everywhere"))

    @app.get("/")
    @limiter.limit("1 at once", ban=Ban("2/hour", "1 day", name="own"))
    def index() -> str:
        if "again" in request.args:
            return str(statuses(app.test_client(), "/", 2))
        return "fine"

    client = app.test_client()
    assert client.get("/?again=1").text == "[429, 429]"
    assert [outcome.limit.name for outcome in began] == ["own"]
    assert client.get("/").status_code == 429
