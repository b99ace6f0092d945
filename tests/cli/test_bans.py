"""``bans`` and ``ban``, and bans in the other commands, on a real server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask, g

from flask_bucket import Ban, Limiter, Rule, request_header
from flask_bucket.cli.bans import date_of
from tests.cli.conftest import codes, examine, get, run_in
from tests.servers import Server

DAY = 86_400
ME, OTHER = "203.0.113.7", "203.0.113.77"


def make(valkey: Server, bans: Any = "2/hour for 1 day", **config: Any) -> Flask:
    app = Flask(__name__)
    app.config.update(BUCKET_REDIS_URL=valkey.url, BUCKET_TIMEOUT=5, **config)
    limiter = Limiter(app, bans=bans)
    app.add_url_rule("/search", "search", limiter.limit("1/hour")(lambda: "found"))
    own = limiter.limit("1/hour", ban=Ban("1/hour", "1 hour", name="own"))
    app.add_url_rule("/login", "login", own(lambda: "welcome"))
    return app


@pytest.fixture
def app(valkey: Server) -> Iterator[Flask]:
    app = make(valkey)
    yield app
    app.extensions["flask_bucket"]["bucket"].store.close()


def test_it_lists_who_is_banned_from_what_and_until_when(app: Flask) -> None:
    get(app, "/search", 3)
    get(app, "/login", 2, OTHER)
    rule, limiter = run_in(app)("bans", "--json").data["bans"]
    assert (rule["client"], rule["scope"], rule["name"]) == (OTHER, "login", "own")
    assert (limiter["client"], limiter["scope"], limiter["after"]) == (ME, "limiter", "2/hour")
    assert DAY - 60 < limiter["over_in"] <= DAY
    assert abs(limiter["until"] - time.time() - DAY) < 60


def test_people_see_a_table(app: Flask) -> None:
    get(app, "/search", 3)
    heading, row = run_in(app)("bans").out.splitlines()
    assert heading.split() == ["CLIENT", "BANNED", "FROM", "AFTER", "OVER", "IN", "UNTIL"]
    assert row.split()[:3] == [ME, "limiter", "2/hour"]


def test_those_who_were_refused_and_are_not_banned_are_not_listed(app: Flask) -> None:
    get(app, "/search", 2)
    assert run_in(app)("bans").out == "Nobody is banned.\n"


def test_a_client_is_banned_by_hand(app: Flask) -> None:
    said = run_in(app)("ban", ME, "--for", "1 hour")
    assert said.code == 0
    assert said.out.startswith(f"{ME} is banned for 1 h, until 20")
    assert said.out.endswith(", by the ban 'ban' (after 2/hour) of the Limiter 'bucket'.\n")
    assert get(app, "/search") == [429]
    assert get(app, "/search", address=OTHER) == [200]
    (banned,) = run_in(app)("bans", "--json").data["bans"]
    assert 3_590 < banned["over_in"] <= 3_600


def test_a_ban_by_hand_replaces_one_that_goes_on(app: Flask) -> None:
    get(app, "/search", 3)
    for time_, seconds in (("10 minutes", 600), ("2 days", 2 * DAY)):
        run_in(app)("ban", ME, "--for", time_)
        (banned,) = run_in(app)("bans", "--json").data["bans"]
        assert seconds - 10 < banned["over_in"] <= seconds


def test_a_ban_by_hand_is_counted_in_the_ticks_of_the_configured_one(valkey: Server) -> None:
    """In finer ones, a debt of a day would be more than the script counts."""
    app = make(valkey, "1000003/second burst 5 for 1 year")
    run_in(app)("ban", ME, "--for", "1 day")
    (banned,) = run_in(app)("bans", "--json").data["bans"]
    assert DAY - 10 < banned["over_in"] <= DAY


def test_without_a_time_it_lasts_as_the_ban_says(app: Flask) -> None:
    (told,) = run_in(app)("ban", ME, "--json").data["bans"]
    assert told["limiter"] == "bucket"
    assert abs(told["until"] - time.time() - DAY) < 60


def test_reset_lifts_a_ban(app: Flask) -> None:
    run_in(app)("ban", ME)
    run_in(app)("reset", ME)
    assert run_in(app)("bans", "--json").data == {"bans": []}


def test_after_a_ban_by_hand_there_is_one_token(app: Flask) -> None:
    run_in(app)("ban", ME, "--for", "1 ms")
    time.sleep(0.01)  # on the server's clock
    assert get(app, "/search", 3) == [200, 429, 429]
    assert len(run_in(app)("bans", "--json").data["bans"]) == 1


def test_an_address_is_banned_with_its_network(app: Flask) -> None:
    said = run_in(app)("ban", "2001:db8::1")
    assert said.out.startswith("2001:db8::/64 is banned for 1 d")
    assert get(app, "/search", address="2001:db8::2") == [429]


def test_a_ban_by_another_key_is_of_that(valkey: Server) -> None:
    app = make(valkey, Ban("2/hour", "1 day", key_func=request_header("X-API-Key")))
    run_in(app)("ban", "k1")
    client = app.test_client()
    assert client.get("/search", headers={"X-API-Key": "k1"}).status_code == 429
    assert client.get("/search", headers={"X-API-Key": "k2"}).status_code == 200


def two_bans(valkey: Server, **options: Any) -> Flask:
    return make(valkey, [Ban("3/minute", "5 minutes"), Ban("5/hour", "2 days", **options)])


def test_all_bans_of_a_key_begin_and_each_is_named(valkey: Server) -> None:
    app = two_bans(valkey)
    short, long = run_in(app)("ban", ME).out.splitlines()
    assert short.startswith(f"{ME} is banned for 5 min, until 20")
    assert short.endswith(" by the ban 'ban' (after 3/minute) of the Limiter 'bucket'.")
    assert long.startswith(f"{ME} is banned for 2 d, until 20")
    assert long.endswith(" by the ban 'ban-2' (after 5/hour) of the Limiter 'bucket'.")
    assert [b["after"] for b in run_in(app)("bans", "--json").data["bans"]] == [
        "3/minute",
        "5/hour",
    ]


def test_one_of_several_bans_is_chosen_by_its_name(valkey: Server) -> None:
    app = two_bans(valkey)
    said = run_in(app)("ban", ME, "--ban", "ban-2", "--json").data
    assert [(b["ban"], b["after"], b["clients"]) for b in said["bans"]] == [
        ("ban-2", "5/hour", [ME])
    ]
    assert [b["name"] for b in run_in(app)("bans", "--json").data["bans"]] == ["ban-2"]


def test_bans_of_several_keys_have_to_be_told_apart(valkey: Server) -> None:
    app = two_bans(valkey, name="by-key", key_func=request_header("X-API-Key"))
    said = run_in(app)("ban", ME)
    assert (said.code, said.out) == (2, "")
    assert "Say with --ban" in said.err
    assert "ban (after 3/minute for 5 minutes, by client_address); by-key (after" in said.err
    assert run_in(app)("ban", "k1", "--ban", "by-key").code == 0
    (banned,) = run_in(app)("bans", "--json").data["bans"]
    assert (banned["client"], banned["name"]) == ("k1", "by-key")


def test_a_ban_that_there_is_not_is_an_error(app: Flask) -> None:
    said = run_in(app)("ban", ME, "--ban", "own")
    assert (said.code, said.out) == (1, "")
    assert "No Limiter has a ban 'own'. There are 'ban'." in said.err


def test_a_limiter_without_a_ban_is_named(app: Flask) -> None:
    Limiter(app, name="two")
    said = run_in(app)("ban", ME, "--limiter", "two")
    assert (said.code, said.out) == (1, "")
    assert "The Limiter 'two' has no ban of its own" in said.err


@pytest.mark.parametrize("text", ["soon", "1 fortnight", "", "-1 hours"])
def test_a_time_that_is_none_is_refused(app: Flask, text: str) -> None:
    said = run_in(app)("ban", ME, "--for", text)
    assert (said.code, said.out) == (2, "")
    assert f"--for '{text}'" in said.err


def test_a_ban_by_hand_lasts_for_some_time(app: Flask) -> None:
    said = run_in(app)("ban", ME, "--for", "0 hours")
    assert (said.code, said.out) == (2, "")
    assert "--for '0 hours': no time at all. Expected one above 0" in said.err


def test_a_ban_by_hand_lasts_for_a_hundred_years_at_most(app: Flask) -> None:
    assert run_in(app)("ban", ME, "--for", "100 years").code == 0
    assert run_in(app)("bans").code == 0
    said = run_in(app)("ban", ME, "--for", "101 years")
    assert (said.code, said.out) == (2, "")
    assert "a ban lasts for at most 100 years" in said.err


def test_a_time_that_cannot_be_counted_is_refused_with_the_longest_that_can(
    valkey: Server,
) -> None:
    app = make(valkey, "1003/second burst 5 for 1 hour")
    said = run_in(app)("ban", ME, "--for", "90 years")
    assert (said.code, said.out) == (2, "")
    assert "counted exactly by the ban 'ban'" in said.err
    longest = said.err.split("at most ")[1].split(" d")[0]
    assert run_in(app)("ban", ME, "--for", f"{longest} days").code == 0
    assert run_in(app)("ban", ME, "--for", f"{int(longest) + 1} days").code == 2


@pytest.mark.parametrize("client", ["", "  "])
def test_a_client_has_a_name(app: Flask, client: str) -> None:
    said = run_in(app)("ban", client)
    assert (said.code, said.out) == (2, "")
    assert "Expected what the key function of the ban returns" in said.err


def test_a_time_that_is_no_date_is_shown_all_the_same() -> None:
    assert date_of(3.1e13) == "after 9999"
    assert date_of(1e300) == "after 9999"


def test_without_a_configured_ban_nobody_can_be_banned(valkey: Server) -> None:
    said = run_in(make(valkey, ()))("ban", ME, "--for", "1 hour")
    assert said.code == 1
    assert "BUCKET_BANS" in said.err


def test_limiters_that_are_switched_off_are_told_of(valkey: Server) -> None:
    app = make(valkey, BUCKET_ENABLED=False)
    said = run_in(app)("ban", ME)
    assert said.code == 0
    assert said.out.startswith(f"{ME} is banned")
    assert "The Limiter 'bucket' is switched off here (BUCKET_ENABLED)" in said.err
    assert run_in(app)("ban", ME, "--json").data["bans"][0]["enforced"] is False


def test_a_dry_run_bans_nobody(valkey: Server) -> None:
    said = run_in(make(valkey, BUCKET_DRY_RUN=True))("ban", ME, "--for", "1 hour")
    assert said.code == 1
    assert "dry run" in said.err


def test_bans_of_a_dry_run_are_listed_as_such(valkey: Server) -> None:
    app = make(valkey, BUCKET_DRY_RUN=True)
    get(app, "/search", 4)
    (banned,) = run_in(app)("bans", "--json").data["bans"]
    assert banned["scope"] == "limiter dry-run"


def test_buckets_in_memory_cannot_be_seen() -> None:
    app = Flask(__name__)
    Limiter(app, bans="2/hour for 1 day")
    for command in (["bans"], ["ban", ME]):
        said = run_in(app)(*command)
        assert said.code == 1
        assert "memory" in said.err


def test_show_tells_bans_from_limits(app: Flask) -> None:
    get(app, "/search", 2)
    rows = run_in(app)("show", ME).out.splitlines()[1:]
    assert [row.split("  ")[0] for row in rows] == ["limiter", "search"]
    assert "ban after 2/hour" in rows[0]
    assert "banned" not in rows[0]
    get(app, "/search")
    row = run_in(app)("show", ME).out.splitlines()[1]
    assert "banned" in row
    assert "23 h 59 min" in row or "1 d" in row
    assert run_in(app)("show", ME, "--json").data["buckets"][0]["kind"] == "ban"


def test_top_lists_no_bans(app: Flask) -> None:
    get(app, "/search", 3)
    assert {b["kind"] for b in run_in(app)("top", "--json").data["buckets"]} == {"rate"}


def test_limits_names_the_bans(app: Flask) -> None:
    out = run_in(app)("limits").out
    assert "ban after 1/hour for 1 hour" in out
    assert "The Limiter 'bucket' bans clients after 2/hour for 1 day." in out


def test_a_simulation_leaves_bans_out_and_says_so(app: Flask, write_log: Any) -> None:
    lines = [
        f'{ME} - - [17/May/2015:10:05:0{n} +0000] "GET /search HTTP/1.1" 200 5' for n in range(9)
    ]
    out = run_in(app)("simulate", write_log(*lines)).out
    assert "1 allowed, 8 refused" in out
    assert "bans are left out" in out


def test_the_doctor_finds_a_ban_that_counts_nothing(valkey: Server) -> None:
    app = make(valkey, Ban("2/hour", "1 day", key_func=request_header("X-API-Key")))
    assert "FB601" in codes(examine(app))
    assert "FB601" not in codes(examine(make(valkey)))


def test_the_doctor_knows_that_a_ban_counts_limits_for_one_method(valkey: Server) -> None:
    app = Flask(__name__)
    app.config["BUCKET_REDIS_URL"] = valkey.url
    by_key = request_header("X-API-Key")
    rule = Rule("3/hour", key_func=by_key, methods=["POST"])
    Limiter(app, application_limits=rule, bans=Ban("2/hour", "1 day", key_func=by_key))
    assert "FB601" not in codes(examine(app))


@pytest.mark.parametrize(("bans", "found"), [("2/hour for 1 day", True), ((), False)])
def test_the_doctor_finds_leases_that_bans_make_useless(
    valkey: Server, bans: Any, found: bool
) -> None:
    app = Flask(__name__)
    app.config.update(BUCKET_REDIS_URL=valkey.url, BUCKET_WORKERS=2)
    Limiter(app, bans=bans, application_limits=Rule("5000/second", lease=0.1))
    assert ("FB602" in codes(examine(app))) is found


def test_the_doctor_names_hooks_that_run_after_a_ban_asks_for_its_client(valkey: Server) -> None:
    app = Flask(__name__, static_folder=None)
    app.config["BUCKET_REDIS_URL"] = valkey.url

    def user() -> str | None:
        return getattr(g, "user", None)

    Limiter(app, bans=Ban("2/hour", "1 day", key_func=user), application_limits="5/second")

    @app.before_request
    def log_in() -> None:
        g.user = "ann"

    app.add_url_rule("/", "index", lambda: "fine")
    (finding,) = [f for f in examine(app).data["findings"] if f["code"] == "FB305"]
    assert "(user) are called before these hooks run: " in finding["what"]
    assert "log_in" in finding["what"]
