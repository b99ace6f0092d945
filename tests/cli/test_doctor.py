"""``flask bucket doctor``: finds each planted fault, and nothing where all is well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from flask import Flask
from redis.backoff import NoBackoff
from redis.retry import Retry

from flask_bucket import Limiter
from flask_bucket.cli.server_checks import _node, _round_trip
from flask_bucket.stores.redis.inspection import Node
from tests.cli.conftest import codes, examine, healthy, run_in
from tests.servers import Server


def test_where_all_is_well_nothing_is_found(valkey: Server) -> None:
    said = examine(healthy(valkey))
    assert (said.code, codes(said)) == (0, [])
    assert codes(said, "ok") == ["FB101", "FB103"]


def test_looking_leaves_nothing_behind(valkey: Server) -> None:
    examine(healthy(valkey))
    with valkey.client() as client:
        assert client.dbsize() == 0


def test_findings_come_by_their_codes(valkey: Server) -> None:
    app = healthy(valkey, RATELIMIT_DEFAULT="1/hour", BUCKET_DEFAULT_LIMITS="3/second")
    app.add_url_rule("/", "index", lambda: "")
    found = [finding["code"] for finding in examine(app).data["findings"]]
    assert {"FB206", "FB303"} <= set(found)
    assert found == sorted(found)


def test_people_read_what_to_do(valkey: Server) -> None:
    app = healthy(valkey, BUCKET_ENABLED=False)
    said = run_in(app)("doctor")
    assert said.code == 0
    assert (
        "FB203  warning  BUCKET_ENABLED is False, so no limit is enforced. Set it to True."
        in said.out
    )
    assert said.out.endswith("\n0 errors, 1 warning.\n")
    assert run_in(app)("doctor", "--strict").code == 1


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "redis+cluster://127.0.0.1:1"])
def test_a_server_that_does_not_answer(url: str, valkey: Server) -> None:
    app = healthy(valkey, BUCKET_REDIS_URL=url)
    said = examine(app)
    assert (said.code, codes(said)) == (1, ["FB101"])


def test_a_server_far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # no allowance for a busy machine
    assert [f.code for f in _round_trip(0.02, timeout=0.1)] == ["FB102"]
    assert [f.code for f in _round_trip(0.004, timeout=0.01)] == ["FB102"]
    assert not list(_round_trip(0.001, timeout=0.1))


def node(**changes: Any) -> Node:
    facts: dict[str, Any] = {
        "name": "127.0.0.1:6379",
        "engine": "Redis",
        "version": (7, 2, 4),
        "clock_offset": 0.01,
        "max_memory": 0,
        "used_memory": 1,
        "eviction": "noeviction",
        "snapshots": True,
        "log": False,
    }
    return Node(**(facts | changes))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"version": (6, 0, 16)}, "FB103"),
        ({"engine": "Valkey", "version": (7, 1)}, "FB103"),
        ({"clock_offset": 3.0}, "FB104"),
        ({"clock_offset": -3.0}, "FB104"),
        ({"max_memory": 10, "eviction": "allkeys-lru"}, "FB105"),
        ({"max_memory": 10, "eviction": "volatile-ttl"}, "FB105"),
        ({"max_memory": 10, "used_memory": 9}, "FB105"),
        ({"snapshots": False}, "FB106"),
    ],
)
def test_each_fault_of_a_server(changes: dict[str, Any], code: str) -> None:
    assert [f.code for f in _node(node(**changes)) if f.level != "ok"] == [code]


@pytest.mark.parametrize(
    "changes",
    [
        {"version": (6, 2, 0)},
        {"engine": "Valkey", "version": (9, 1, 0)},
        {"clock_offset": -0.9},
        {"max_memory": 0, "eviction": "allkeys-lru"},
        {"max_memory": None, "eviction": None, "snapshots": None},
        {"log": True, "snapshots": False},
    ],
)
def test_what_is_no_fault_of_a_server(changes: dict[str, Any]) -> None:
    assert not [f.code for f in _node(node(**changes)) if f.level != "ok"]


def test_every_engine_tells_of_itself(server: Server) -> None:
    with server.client() as client:
        client.config_set("maxmemory", "500mb")
        client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        assert codes(examine(healthy(server))) == ["FB105"]
    finally:
        with server.client() as client:
            client.config_set("maxmemory", "0")
            client.config_set("maxmemory-policy", "noeviction")


@pytest.fixture
def user(valkey: Server) -> Iterator[str]:
    """A user of the server that may do nothing yet; the URL to come as it."""
    with valkey.client() as client:
        client.execute_command("ACL", "SETUSER", "app", "on", ">secret", "~bucket:*", "-@all")
        yield f"redis://app:secret@127.0.0.1:{valkey.port}/0"
        client.execute_command("ACL", "DELUSER", "app")


def allow(valkey: Server, *rules: str) -> None:
    with valkey.client() as client:
        client.execute_command("ACL", "SETUSER", "app", "+ping", *rules)


def test_a_user_who_may_not_decide(valkey: Server, user: str) -> None:
    allow(valkey, "+info", "+time", "+config", "+scan", "+unlink", "+hmget", "+evalsha", "+eval")
    said = examine(healthy(valkey, BUCKET_REDIS_URL=user))
    assert (said.code, codes(said)) == (1, ["FB107"])


def test_a_user_who_may_decide_and_no_more(valkey: Server, user: str) -> None:
    allow(valkey, "+evalsha", "+eval", "+time", "+hmget", "+hset", "+pexpire")
    app = healthy(valkey, BUCKET_REDIS_URL=user)
    said = examine(app)
    assert (said.code, codes(said)) == (0, ["FB107", "FB107"])
    assert "SCAN, UNLINK" in said.data["findings"][2]["what"]
    refused = run_in(app)("top")
    assert (refused.code, refused.err.count("\n")) == (1, 1)


def test_a_server_that_may_not_be_written_to(own_server: Server) -> None:
    with own_server.client() as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
    said = examine(healthy(own_server))
    assert (said.code, codes(said)) == (1, ["FB107"])
    assert "ReadOnly" in said.out


def test_a_server_whose_memory_is_full(own_server: Server) -> None:
    with own_server.client() as client:
        client.config_set("maxmemory", "100kb")
    said = examine(healthy(own_server))
    assert (said.code, codes(said)) == (1, ["FB105", "FB107"])


def test_a_server_that_hangs(own_server: Server) -> None:
    app = healthy(own_server, BUCKET_TIMEOUT=0.1)
    own_server.freeze()
    try:
        assert codes(examine(app)) == ["FB101"]
    finally:
        own_server.thaw()


def test_a_client_without_timeouts(valkey: Server) -> None:
    client = redis.Redis(
        port=valkey.port,
        socket_timeout=None,
        socket_connect_timeout=None,
        retry=Retry(NoBackoff(), 0),
    )
    app = Flask(__name__, static_folder=None)
    Limiter(app, redis=client, application_limits="5/minute")
    said = examine(app)
    assert (said.code, codes(said)) == (1, ["FB108"])
    client.close()


def test_a_client_that_retries(valkey: Server) -> None:
    client = redis.Redis(
        port=valkey.port,
        socket_timeout=1,
        socket_connect_timeout=1,
        retry=Retry(NoBackoff(), 3),
    )
    app = Flask(__name__, static_folder=None)
    Limiter(app, redis=client, application_limits="5/minute")
    said = examine(app)
    assert (said.code, codes(said)) == (0, ["FB109"])
    assert "3 more times" in said.out
    assert "retry=None" not in said.out  # which chooses retries on a RedisCluster
    client.close()


def test_a_client_that_was_handed_in_waits_by_its_own_timeouts(valkey: Server) -> None:
    client = redis.Redis(
        port=valkey.port,
        socket_timeout=3,
        socket_connect_timeout=4,
        retry=Retry(NoBackoff(), 0),
    )
    app = Flask(__name__, static_folder=None)
    Limiter(app, redis=client, application_limits="5/minute")
    said = examine(app)
    assert (said.code, codes(said, "note")) == (0, ["FB106", "FB108"])
    assert "connects within 4 s and waits 3 s" in said.out
    client.close()
