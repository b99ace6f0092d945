"""Bans: clients that go on after being refused are refused everywhere, for a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Blueprint, Flask, g, request
from flask.testing import FlaskClient

from flask_bucket import (
    Ban,
    Charge,
    ConfigError,
    Decision,
    Limiter,
    MemoryStore,
    Outcome,
    RateLimitExceeded,
    Rule,
    StoreUnavailable,
    client_banned,
    client_network,
    limit_exceeded,
    request_header,
)
from flask_bucket.stores.base import WrappingStore
from tests.conftest import START
from tests.ext.conftest import Clock, CountingStore, allowed, answer, statuses

DAY = 86_400
by_tenant = request_header("X-Tenant")


class Away(WrappingStore):
    """A store that can be out of reach, and that the application does not wrap less for."""

    away = False

    def take(self, *arguments: Any, **more: Any) -> Decision:
        if self.away:
            raise StoreUnavailable("away")
        return super().take(*arguments, **more)


@pytest.fixture
def began() -> Iterator[list[Outcome]]:
    """The bans that were signalled."""
    outcomes: list[Outcome] = []

    def note(sender: Flask, outcome: Outcome, **_: Any) -> None:
        outcomes.append(outcome)

    with client_banned.connected_to(note):
        yield outcomes


def shop(app: Flask, store: object, bans: Any = "3/hour for 1 day", **options: Any) -> FlaskClient:
    """Serve two views with a limit each, and one without."""
    return stocked(app, Limiter(app, redis=store, bans=bans, **options))


def stocked(app: Flask, limiter: Limiter) -> FlaskClient:
    app.add_url_rule("/", "index", limiter.limit("1/minute")(answer()))
    app.add_url_rule("/other", "other", limiter.limit("5/minute")(answer()))
    app.add_url_rule("/free", "free", answer())
    return app.test_client()


# When a ban begins, and when it is over.


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


# What counts.


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


# A ban on a rule.


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


# What a client hears.


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


# The refusal cache, outages, dry runs, resets.


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


def test_settling_and_giving_back_concern_no_ban(
    app: Flask, buckets: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled: list[Charge] = []
    monkeypatch.setattr(buckets, "settle", lambda charges, now=None: settled.extend(charges))
    limiter = Limiter(app, redis=buckets, bans="9/hour for 1 day", application_limits="9/hour")

    @app.get("/settle")
    @limiter.limit("9/minute", cost=2, ban="9/hour for 1 day")
    def settle() -> str:
        limiter.settle(1)
        return "fine"

    @app.get("/back")
    @limiter.limit("9/minute", deduct_when=lambda response: False, ban="9/hour for 1 day")
    def back() -> str:
        return "fine"

    client = app.test_client()
    client.get("/settle")
    client.get("/back")
    assert [(charge.kind, charge.cost) for charge in settled] == [("rate", -1), ("rate", -1)]


def test_reset_lifts_a_ban(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=WrappingStore(buckets), bans="3/hour for 1 day")
    client = stocked(app, limiter)
    statuses(client, "/", 4)
    with app.app_context():
        limiter.reset("127.0.0.1")
    assert statuses(client, "/", 4) == [200, 429, 429, 429]


def test_reset_current_touches_no_ban(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets, bans="3/hour for 1 day")

    @app.get("/")
    @limiter.limit("1/minute", ban="3/hour for 1 day")
    def index() -> str:
        if "forgive" in request.args:
            limiter.reset_current()
        return "fine"

    @app.get("/reset")
    @limiter.limit("9/minute", scope="reset")
    def reset() -> str:
        limiter.reset_current()
        return "fine"

    client = app.test_client()
    assert statuses(client, "/?forgive=1", 9) == [200] * 9
    assert statuses(client, "/", 4) == [200, 429, 429, 429]
    assert client.get("/reset").status_code == 429


# Where it is written.


def test_the_setting_wins_over_the_constructor(app: Flask, buckets: CountingStore) -> None:
    app.config["BUCKET_BANS"] = ["1/hour for 1 minute"]
    client = shop(app, buckets, "9/hour for 1 day")
    statuses(client, "/", 2)
    assert client.get("/other").headers["Retry-After"] == "60"


def test_a_setting_that_is_no_ban_is_refused(app: Flask) -> None:
    app.config["BUCKET_BANS"] = "20/hour"
    with pytest.raises(ConfigError, match="BUCKET_BANS"):
        Limiter(app)


def test_bans_that_are_none_are_refused_where_they_are_written() -> None:
    with pytest.raises(ConfigError, match="is not a ban"):
        Limiter(bans="20/hour")


@pytest.mark.parametrize("bans", [(), "9/hour for 1 day"])
def test_a_request_is_one_call_with_and_without_bans(
    app: Flask, buckets: CountingStore, bans: Any
) -> None:
    client = shop(app, buckets, bans)
    statuses(client, "/other", 5)
    assert buckets.calls == ["take"] * 5


def test_a_memory_store_needs_no_cache(app: Flask) -> None:
    client = shop(app, MemoryStore(lambda: START), "1/hour for 1 day")
    assert statuses(client, "/", 3) == [200, 429, 429]
