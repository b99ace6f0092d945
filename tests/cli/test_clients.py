"""``show`` and ``reset``: the buckets of one client, on real servers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest
import redis
from flask import Blueprint, Flask, g, has_request_context, request
from redis.backoff import NoBackoff
from redis.retry import Retry

from flask_bucket import AtOnce, Limit, Limiter, Rule
from tests.cli.conftest import Said, get, run_in
from tests.servers import ENGINES, Cluster, Sentinel, Server


def test_a_clients_buckets_are_shown_as_they_stand(app: Flask) -> None:
    get(app, "/search", 3)
    said = run_in(app)("show", "203.0.113.7", "--json")
    (bucket,) = said.data["buckets"]
    assert bucket["tokens"] == 2
    assert (bucket["limit"], bucket["capacity"], bucket["scope"]) == ("5/minute", 5, "search")
    assert 11 < bucket["next_in"] <= 12
    assert 35 < bucket["full_in"] <= 36


def test_people_see_a_table(app: Flask) -> None:
    get(app, "/search", 3)
    columns = ["SCOPE", "LIMIT", "TOKENS", "CAPACITY"]
    heading, row = run_in(app)("show", "203.0.113.7").out.splitlines()
    assert heading.split() == [*columns, "NEXT", "TOKEN", "IN", "FULL", "IN"]
    assert row.split()[:4] == ["search", "5/minute", "2", "5"]


def test_of_other_clients_nothing_is_shown(app: Flask) -> None:
    get(app, "/search", address="203.0.113.77")
    said = run_in(app)("show", "203.0.113.7")
    assert (said.code, said.out) == (
        0,
        "No bucket of 203.0.113.7 is stored, so all are full.\n",
    )


def test_an_address_is_shown_with_its_network(app: Flask) -> None:
    get(app, "/search", address="2001:db8::1")
    assert len(run_in(app)("show", "2001:db8::2", "--json").data["buckets"]) == 1


def test_a_secret_does_not_hide_a_client_from_those_who_have_it(app: Flask, valkey: Server) -> None:
    secret = Flask(__name__)
    secret.config.update(BUCKET_REDIS_URL=valkey.url, BUCKET_KEY_SECRET="s", BUCKET_TIMEOUT=5)
    Limiter(secret, application_limits="5/minute")
    get(secret, "/")
    assert len(run_in(secret)("show", "203.0.113.7", "--json").data["buckets"]) == 1
    assert "203" not in run_in(secret)("top").out


def test_a_bucket_that_no_rule_names_is_shown_with_what_is_known(app: Flask) -> None:
    earlier, now = Flask("shop"), Flask("shop")
    for deploy, limit in ((earlier, "5/hour"), (now, "7/day")):
        deploy.config.update(app.config)
        Limiter(deploy, application_limits=limit)
    get(earlier, "/", 2)
    (bucket,) = run_in(now)("show", "203.0.113.7", "--json").data["buckets"]
    assert (bucket["name"], bucket["tokens"], bucket["limit"]) == ("per-hour", 3, None)
    said = run_in(now)("show", "203.0.113.7").out
    assert "per-hour of no rule" in said
    assert "No rule of the application has this limit:" in said


def test_the_limit_of_a_call_by_hand_is_known(app: Flask) -> None:
    limiter = Limiter(app, name="mail")
    with app.app_context():
        limiter.consume("5/hour", "alice", 2)
    (bucket,) = run_in(app)("show", "alice", "--json").data["buckets"]
    assert (bucket["limit"], bucket["tokens"], bucket["capacity"]) == ("5/hour", 3, 5)
    assert "5/hour" in run_in(app)("top").out


def test_limits_that_a_function_returned_are_shown_with_their_numbers(app: Flask) -> None:
    plans = iter(["10/minute", "2 per 15 minutes burst 9", "10/minute"])
    limiter = Limiter(app, name="plans")
    app.add_url_rule("/plan", "plan", limiter.limit(lambda: next(plans))(lambda: ""))
    get(app, "/plan", 3)
    run = run_in(app)
    buckets = run("show", "203.0.113.7", "--limiter", "plans", "--json").data["buckets"]
    shown = {b["limit"]: (b["capacity"], b["tokens"], b["from_function"]) for b in buckets}
    assert shown == {"10/minute": (10, 8, True), "2 per 15 minutes burst 9": (9, 8, True)}
    rows = run("show", "203.0.113.7", "--limiter", "plans").out.splitlines()[1:]
    assert all(row.startswith("plan  ") for row in rows)
    assert "10/minute from lambda in line" in rows[0]


def test_a_named_limit_from_the_configuration_is_known(app: Flask) -> None:
    app.config["SEARCHES"] = "7/hour"
    limiter = Limiter(app, name="named")
    limited = limiter.limit(lambda: app.config["SEARCHES"], name="searches")
    app.add_url_rule("/named", "named", limited(lambda: ""))
    get(app, "/named")
    run = run_in(app)
    (bucket,) = run("show", "203.0.113.7", "--limiter", "named", "--json").data["buckets"]
    assert (bucket["limit"], bucket["capacity"], bucket["tokens"]) == ("7/hour", 7, 6)


def plans(app: Flask, **options: Any) -> Limiter:
    """Limit a blueprint by the plan of the customer, which only a request knows."""

    def limit_of_the_plan() -> str:
        return {"acme": "20/hour burst 100", "bob": "1/hour burst 5"}[g.customer]

    limiter = Limiter(app, name="plans")
    api = Blueprint("api", __name__, url_prefix="/api")

    @api.before_request
    def check_key() -> None:
        g.customer = request.headers["X-API-Key"]

    def customer() -> str:
        return str(g.customer)

    limiter.shared_limit(limit_of_the_plan, "api", key_func=customer, **options)(api)
    api.add_url_rule("/items", "items", lambda: "")
    app.register_blueprint(api)
    return limiter


def show_plan(app: Flask, customer: str, *arguments: str) -> Said:
    assert app.test_client().get("/api/items", headers={"X-API-Key": customer}).status_code == 200
    return run_in(app)("show", customer, "--limiter", "plans", *arguments)


def test_a_named_limit_that_needs_a_request_is_shown_as_each_client_has_it(app: Flask) -> None:
    plans(app, name="plan")
    (bucket,) = show_plan(app, "bob", "--json").data["buckets"]
    assert (bucket["name"], bucket["limit"]) == ("plan", "1/hour burst 5")
    assert (bucket["tokens"], bucket["capacity"]) == (4, 5)
    assert 3_590 < bucket["next_in"] <= 3_600
    assert (bucket["from_function"], bucket["function"]) == (True, "limit_of_the_plan")
    said = show_plan(app, "acme").out
    assert "20/hour burst 100 from limit_of_the_plan" in said
    assert "?" not in said
    top = run_in(app)("top", "--limiter", "plans").out
    assert "1/hour burst 5 from limit_of_the_plan" in top
    assert "20/hour burst 100 from limit_of_the_plan" in top


def test_a_limit_given_a_name_by_its_function_is_known(app: Flask) -> None:
    limiter = Limiter(app, name="own")
    limited = limiter.limit(lambda: Limit(g.capacity, 1, 60, name="plan"))

    @app.before_request
    def choose() -> None:
        g.capacity = 9

    app.add_url_rule("/own", "own", limited(lambda: ""))
    get(app, "/own", 2)
    (bucket,) = run_in(app)("show", "203.0.113.7", "--limiter", "own", "--json").data["buckets"]
    assert (bucket["limit"], bucket["tokens"]) == ("1/minute burst 9", 7)


def test_a_client_on_a_new_plan_is_shown_with_the_new_limit(app: Flask) -> None:
    plan = ["20/hour burst 100"]
    limiter = Limiter(app, name="moved")
    limited = limiter.limit(lambda: plan[0] if has_request_context() else "9/day", name="plan")
    app.add_url_rule("/moved", "moved", limited(lambda: ""))
    get(app, "/moved")
    plan[0] = "3/minute"
    get(app, "/moved")
    (bucket,) = run_in(app)("show", "203.0.113.7", "--limiter", "moved", "--json").data["buckets"]
    assert (bucket["limit"], bucket["tokens"], bucket["capacity"]) == ("3/minute", 2, 3)


def test_a_refused_request_leaves_the_limit_known(app: Flask) -> None:
    plans(app, name="plan")
    for _ in range(5):
        app.test_client().get("/api/items", headers={"X-API-Key": "bob"})
    refused = app.test_client().get("/api/items", headers={"X-API-Key": "bob"})
    assert refused.status_code == 429
    (bucket,) = run_in(app)("show", "bob", "--limiter", "plans", "--json").data["buckets"]
    assert (bucket["limit"], bucket["tokens"]) == ("1/hour burst 5", 0)


def test_a_limit_that_a_rule_says_is_shown_as_the_rule_says_it(app: Flask) -> None:
    """Also where a function returned another one under this name in an earlier deploy."""
    earlier, now = Flask("shop"), Flask("shop")
    for deploy, limit in ((earlier, lambda: "5/hour"), (now, "7/hour")):
        deploy.config.update(app.config)
        limiter = Limiter(deploy)
        deploy.add_url_rule("/", "view", limiter.limit(limit, name="plan", scope="x")(lambda: ""))
        get(deploy, "/")
    (bucket,) = run_in(now)("show", "203.0.113.7", "--json").data["buckets"]
    assert (bucket["limit"], bucket["from_function"]) == ("7/hour", False)


def test_named_limits_at_once_of_a_function_are_not_known(app: Flask) -> None:
    limiter = Limiter(app, name="slots")
    limited = limiter.limit(lambda: AtOnce(g.most), name="jobs")
    seen: list[Said] = []

    def look() -> None:
        seen.append(run_in(app)("show", "203.0.113.7", "--limiter", "slots"))
        seen.append(run_in(app)("show", "203.0.113.7", "--limiter", "slots", "--json"))

    def view() -> str:
        thread = Thread(target=look)  # where there is no request
        thread.start()
        thread.join()
        return ""

    @app.before_request
    def choose() -> None:
        g.most = 3

    app.add_url_rule("/slots", "slots", limited(view))
    get(app, "/slots")
    assert re.search(r"slots +jobs from lambda in line \d+ of \S+ +\? +\? +\? +\?", seen[0].out)
    assert seen[1].data["buckets"][0]["tokens"] is None


def test_a_limit_without_a_name_is_shown_with_its_function_and_its_numbers(app: Flask) -> None:
    plans(app)
    (bucket,) = show_plan(app, "acme", "--json").data["buckets"]
    assert (bucket["limit"], bucket["capacity"]) == ("20/hour burst 100", 100)
    assert (bucket["from_function"], bucket["function"]) == (True, "limit_of_the_plan")


def test_a_second_limit_under_the_name_of_a_function_is_known_too(app: Flask) -> None:
    limiter = Limiter(app, name="two")
    limited = limiter.limit(lambda: [g.limit, "9/day"], name="plan", scope="two")

    @app.before_request
    def choose() -> None:
        g.limit = "7/hour"

    app.add_url_rule("/two", "two", limited(lambda: ""))
    get(app, "/two")
    shown = run_in(app)("show", "203.0.113.7", "--limiter", "two", "--json").data["buckets"]
    assert [(b["name"], b["from_function"]) for b in shown] == [("plan", True), ("plan-2", True)]


def limit_of_all() -> str:
    return "7/hour"


@pytest.mark.parametrize("length", [30, 90, 200])
def test_the_limits_of_a_long_endpoint_are_known(app: Flask, length: int) -> None:
    Limiter(app, name="long", default_limits=["5/day", limit_of_all])
    app.add_url_rule("/long", "e" * length, lambda: "")
    get(app, "/long")
    shown = run_in(app)("show", "203.0.113.7", "--limiter", "long", "--json").data["buckets"]
    found = {(bucket["limit"], bucket["function"]) for bucket in shown}
    assert found == {("5/day", None), ("7/hour", "limit_of_all")}


def test_the_limits_of_requests_without_a_route_are_known(app: Flask) -> None:
    Limiter(app, name="un", application_limits=[Rule("5/day", per_method=True)])
    app.test_client().put("/nowhere", environ_base={"REMOTE_ADDR": "203.0.113.7"})
    (bucket,) = run_in(app)("show", "203.0.113.7", "--limiter", "un", "--json").data["buckets"]
    assert bucket["limit"] == "5/day"


def test_a_bucket_of_an_earlier_deploy_is_no_functions(app: Flask) -> None:
    limiter = plans(app, name="plan")
    with app.app_context():
        limiter.consume("5/day", "bob", scope="api")
    shown = show_plan(app, "bob", "--json").data["buckets"]
    assert {b["name"]: b["from_function"] for b in shown} == {"plan": True, "per-day": False}


def test_the_application_and_blueprints_are_named_in_words(app: Flask) -> None:
    limiter = Limiter(app, name="words", application_limits="50/hour")
    blueprint = Blueprint("cart", __name__, url_prefix="/cart")
    limiter.limit("40/hour")(blueprint)
    blueprint.add_url_rule("/", "show", lambda: "")
    app.register_blueprint(blueprint)
    get(app, "/cart/")
    rows = run_in(app)("show", "203.0.113.7", "--limiter", "words").out.splitlines()[1:]
    assert [row.split("  ")[0] for row in rows] == ["application", "cart.show blueprint"]


def test_a_debt_is_shown_as_one(app: Flask) -> None:
    limiter = Limiter(app, name="tokens")

    @app.get("/ask")
    @limiter.limit("5/minute")
    def ask() -> str:
        limiter.settle(8)
        return ""

    get(app, "/ask")
    (bucket,) = run_in(app)("show", "203.0.113.7", "--json").data["buckets"]
    assert bucket["tokens"] == -3
    assert 47 < bucket["next_in"] <= 48


def test_resetting_a_client_fills_its_buckets_and_no_others(app: Flask) -> None:
    for address in ("203.0.113.7", "203.0.113.8"):
        assert get(app, "/search", 6, address)[-1] == 429
    said = run_in(app)("reset", "203.0.113.7")
    assert (said.code, said.out) == (0, "Forgot 1 bucket.\n")
    assert get(app, "/search", address="203.0.113.8") == [429]
    shown = run_in(app)("show", "203.0.113.7", "--json").data
    assert shown["buckets"] == []


def test_several_limiters_are_looked_at_together_or_one_by_one(app: Flask) -> None:
    Limiter(app, name="api", application_limits="9/minute")
    get(app, "/search")
    run = run_in(app)
    both = run("show", "203.0.113.7", "--json").data["buckets"]
    assert [bucket["limiter"] for bucket in both] == ["api", "bucket"]
    assert run("reset", "203.0.113.7", "--limiter", "api", "--json").data["forgotten"] == 1
    (left,) = run("show", "203.0.113.7", "--json").data["buckets"]
    assert left["limiter"] == "bucket"
    unknown = run("show", "203.0.113.7", "--limiter", "nope")
    assert (unknown.code, unknown.err.count("\n")) == (2, 1)


def test_resetting_all_touches_no_key_of_another_prefix_among_100_000(
    app: Flask, valkey: Server
) -> None:
    near_misses = [b"bucket", b"bucket:", b"bucket:x", b"bucket2:{a}:s:n", b"bucket/api:{a}:s:n"]
    near_misses += [b"xbucket:{a}:s:n", b"{bucket:{a}:s:n", b"Bucket:{a}:s:n", b"b?cket:{a}:s:n"]
    with valkey.client() as client:
        for start in range(0, 100_000, 10_000):
            client.mset(
                {f"other:{{{n}}}:search:per-minute": 1 for n in range(start, start + 10_000)}
            )
        client.mset(dict.fromkeys(near_misses, 1))
        others = client.dbsize()
        for n in range(2_000):
            client.hset(f"bucket:{{{n}}}:search:per-minute", mapping={"tokens": 0})
        client.config_resetstat()
        said = run_in(app)("reset", "--all", "--yes")
        assert (said.code, said.out) == (0, "Forgot 2,000 buckets.\n")
        assert client.dbsize() == others
        assert client.exists(*near_misses) == len(near_misses)
        assert "cmdstat_keys" not in client.info("commandstats")  # it would stop the server


def test_a_prefix_that_reads_like_a_pattern_is_taken_by_the_letter(valkey: Server) -> None:
    app = Flask(__name__)
    app.config.update(BUCKET_REDIS_URL=valkey.url, BUCKET_KEY_PREFIX="a.-b", BUCKET_TIMEOUT=5)
    Limiter(app, application_limits="5/minute")
    get(app, "/")
    with valkey.client() as client:
        client.mset({"axb:{c}:s:n": 1, "a.b:{c}:s:n": 1})
        assert run_in(app)("reset", "--all", "--yes").out == "Forgot 1 bucket.\n"
        assert client.dbsize() == 2


def test_resetting_all_asks_first(app: Flask) -> None:
    get(app, "/search")
    refused = run_in(app)("reset", "--all", stdin="n\n")
    assert refused.code == 1
    assert "Forget the buckets of all clients (bucket:{*)?" in refused.err
    nobody_there = run_in(app)("reset", "--all", stdin="")
    assert nobody_there.code == 1
    assert len(run_in(app)("show", "203.0.113.7", "--json").data["buckets"]) == 1
    assert run_in(app)("reset", "--all", stdin="y\n").out.endswith("Forgot 1 bucket.\n")


@pytest.mark.parametrize("arguments", [["reset"], ["reset", "alice", "--all"], ["show"]])
def test_wrong_arguments_are_one_clear_line(app: Flask, arguments: list[str]) -> None:
    said = run_in(app)(*arguments)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "redis+cluster://127.0.0.1:1"])
@pytest.mark.parametrize(
    "arguments", [["show", "a"], ["reset", "a"], ["reset", "--all", "--yes"], ["top"]]
)
def test_a_server_out_of_reach_is_one_clear_line(arguments: list[str], url: str) -> None:
    app = Flask(__name__)
    app.config["BUCKET_REDIS_URL"] = url
    Limiter(app)
    said = run_in(app)(*arguments)
    assert (said.code, said.out, said.err.count("\n")) == (1, "", 1)
    assert "out of reach" in said.err


@pytest.mark.parametrize("arguments", [["show", "a"], ["reset", "a"], ["reset", "--all"], ["top"]])
def test_buckets_in_the_workers_memory_are_said_to_be_there(arguments: list[str]) -> None:
    app = Flask(__name__)
    Limiter(app)
    said = run_in(app)(*arguments)
    assert (said.code, said.err.count("\n")) == (1, 1)
    assert "in the memory of the serving processes" in said.err


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three nodes that share the slots."""
    cluster = Cluster(ENGINES["valkey"]())
    try:
        yield cluster.start()
    finally:
        cluster.stop()


def test_everything_works_on_a_cluster(cluster: Cluster) -> None:
    app = Flask(__name__)
    client = redis.RedisCluster(
        host="127.0.0.1",
        port=cluster.nodes[0].port,
        socket_timeout=5,
        socket_connect_timeout=5,
        retry=Retry(NoBackoff(), 0),
    )
    Limiter(app, application_limits="5/minute", redis=client)
    for n in range(20):
        get(app, "/", 1 + n % 5, f"203.0.113.{n}")
    client.set("other:{a}:s:n", 1)
    client.set("other:{b}:s:n", 1)
    run = run_in(app)
    assert [b["tokens"] for b in run("top", "-n", 5, "--json").data["buckets"]] == [0, 0, 0, 0, 1]
    assert run("show", "203.0.113.4", "--json").data["buckets"][0]["tokens"] == 0
    assert run("reset", "203.0.113.4", "--json").data["forgotten"] == 1
    by_url = Flask(__name__)
    by_url.config["BUCKET_REDIS_URL"] = cluster.url
    Limiter(by_url, application_limits="5/minute")
    for doctor in (run("doctor", "--json"), run_in(by_url)("doctor", "--json")):
        assert doctor.code == 0
        found = [finding["code"] for finding in doctor.data["findings"]]
        assert found.count("FB103") == 3
        wrong = {f["code"] for f in doctor.data["findings"] if f["level"] in ("error", "warning")}
        assert not {"FB107", "FB108", "FB109"} & wrong
    assert run("reset", "--all", "--yes", "--json").data["forgotten"] == 19
    assert client.exists("other:{a}:s:n", "other:{b}:s:n") == 2
    client.close()


def test_everything_works_where_sentinels_say_who_is_the_primary(own_server: Server) -> None:
    sentinel = Sentinel(ENGINES["valkey"](), own_server).start()
    try:
        app = Flask(__name__)
        app.config["BUCKET_REDIS_URL"] = f"redis+sentinel://127.0.0.1:{sentinel.port}/buckets/0"
        Limiter(app, application_limits="5/minute")
        get(app, "/", 2)
        run = run_in(app)
        assert run("doctor").code == 0
        assert run("show", "203.0.113.7", "--json").data["buckets"][0]["tokens"] == 3
        assert run("top", "--json").data["buckets"][0]["tokens"] == 3
        assert run("reset", "--all", "--yes").out == "Forgot 1 bucket.\n"
    finally:
        sentinel.stop()
