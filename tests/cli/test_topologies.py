"""The commands on a cluster, and where sentinels name the primary."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from flask import Flask
from redis.backoff import NoBackoff
from redis.retry import Retry

from flask_bucket import Limiter
from tests.cli.conftest import get, run_in
from tests.servers import ENGINES, Cluster, Sentinel, Server


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
