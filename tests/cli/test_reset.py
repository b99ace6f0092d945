"""``reset``: forgetting the buckets of a client, or of all."""

from __future__ import annotations

from flask import Flask

from flask_bucket import Limiter
from tests.cli.conftest import get, run_in
from tests.servers import Server


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
