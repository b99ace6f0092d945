"""A primary, a replica and three sentinels: the primary is killed under load."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest
import redis

from flask_bucket.decisions import Charge, Decision
from flask_bucket.errors import StoreUnavailable
from flask_bucket.limits import Limit
from flask_bucket.stores.outage import OutageStore
from flask_bucket.stores.redis import RedisStore
from tests.outage.service import ORDINARY, Stalls, at_once
from tests.outage.table import Row, tokens
from tests.servers import Sentinel, Server, valkey_binary

TIMEOUT, INTERVAL = 0.3, 0.3
#: Seconds. So generous that a busy machine is not taken for a fault.
CONNECTING = 20
#: So slow to refill that no token returns during a test.
MANY = Limit.parse("100000/year")
FEW = Limit.parse("5/day")


@dataclass(frozen=True, slots=True)
class Watched:
    """Two servers, one of them the primary, and the sentinels that watch them."""

    servers: list[Server]
    sentinels: list[Sentinel]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/buckets/0"

    def primary(self) -> Server:
        """Wait until the primary and its replica are up, and return the primary."""
        deadline = time.monotonic() + 30
        while True:
            links = {self._role(server): server for server in self.servers}
            if set(links) == {"master", "up"} and all(map(self._knows_all, self.sentinels)):
                return links["master"]
            assert time.monotonic() < deadline, "the sentinels see no primary and replica"
            time.sleep(0.05)

    def _role(self, server: Server) -> str:
        with server.client() as client:
            info = client.info("replication")
        return str(info["role"] if info["role"] == "master" else info["master_link_status"])

    def _knows_all(self, sentinel: Sentinel) -> bool:
        with sentinel.client() as client:
            known = client.sentinel_master("buckets")
        others = (known["num-slaves"], known["num-other-sentinels"])
        return others == (1, 2) and known["flags"] == "master"


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    started: list[Server] = []
    try:
        primary = Server(valkey_binary())
        started.append(primary.start())
        replica = Server(valkey_binary(), "--replicaof", f"127.0.0.1 {primary.port}")
        started.append(replica.start())
        sentinels = [Sentinel(valkey_binary(), primary) for _ in range(3)]
        started += [sentinel.start() for sentinel in sentinels]
        yield Watched([primary, replica], sentinels)
    finally:
        for server in started:
            server.stop()


def test_sentinels_that_do_not_answer_cost_one_timeout(watched: Watched, stalls: Stalls) -> None:
    watched.primary()
    url = watched.url
    dead = "redis+sentinel://127.0.0.1:1," + url.removeprefix("redis+sentinel://")
    store = RedisStore.from_url(dead, timeout=10, connect_timeout=CONNECTING)
    assert store.take([Charge(FEW, "bucket:{a}:page:few")])
    assert store.reset("a") == 1
    store.close()
    unknown = RedisStore.from_url(url.replace("/buckets/", "/others/"), timeout=5)
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"no sentinel knows the primary of 'others'"):
        unknown.take([Charge(FEW, "bucket:{a}:page:few")])
    assert time.monotonic() - began < 5 + ORDINARY + stalls.longest
    unknown.close()


def test_a_demoted_primary_is_left_for_the_new_one(watched: Watched) -> None:
    old = watched.primary()
    new = next(server for server in watched.servers if server is not old)
    store = OutageStore(
        RedisStore.from_url(watched.url, timeout=5, connect_timeout=CONNECTING),
        recovery_interval=0.1,
    )
    charge = Charge(MANY, "bucket:{a}:page:many")
    assert not store.take([charge]).degraded
    deadline = time.monotonic() + 30
    with watched.sentinels[0].client() as sentinel, old.client() as demoted:
        asked = 0.0
        while sentinel.sentinel_get_master_addr_by_name("buckets")[1] != new.port:
            assert time.monotonic() < deadline
            if time.monotonic() > asked + 3:
                # On a busy machine a sentinel may abandon a failover. It tells while one is under
                # way.
                asked = time.monotonic()
                with suppress(redis.ResponseError):
                    sentinel.execute_command("SENTINEL", "FAILOVER", "buckets")
            time.sleep(0.02)
        # The sentinel does this by itself, some seconds later.
        demoted.execute_command("REPLICAOF", "127.0.0.1", new.port)
    while store.take([charge]).degraded:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with new.client() as client:
        assert client.exists(charge.key)
    store.close()


def test_a_killed_primary_is_followed_by_its_replica(
    watched: Watched, table: list[Row], stalls: Stalls
) -> None:
    primary = watched.primary()
    store = OutageStore(
        RedisStore.from_url(watched.url, timeout=TIMEOUT, connect_timeout=CONNECTING),
        recovery_interval=INTERVAL,
    )
    charge = Charge(MANY, "bucket:{load}:page:many")
    seen: list[tuple[float, float, Decision]] = []
    spent = Charge(FEW, "bucket:{spent}:page:few", 5)
    assert store.take([spent])
    over = threading.Event()
    died = 0.0

    def load() -> None:
        while not over.is_set():
            began = time.monotonic()
            decision = store.take([charge])
            seen.append((began, time.monotonic() - began, decision))
            time.sleep(0.003)

    def kill() -> None:
        nonlocal died
        time.sleep(0.7)
        primary.kill()
        died = time.monotonic()
        while time.monotonic() < died + 30 and not (
            seen[-1][0] > died + 0.5 and not seen[-1][2].degraded
        ):
            time.sleep(0.02)
        over.set()

    at_once(kill, load)
    assert not seen[-1][2].degraded, "the replica did not take over"
    assert all(decision.allowed for _, _, decision in seen)
    assert not any(decision.degraded for began, _, decision in seen if began < died - 1)
    assert max(seconds for _, seconds, _ in seen) < TIMEOUT + ORDINARY + stalls.longest
    # Tokens that were used up before the switch are used up after it.
    assert not store.take([spent])
    by_store = sum(not decision.degraded for _, _, decision in seen)
    took = MANY.capacity - seen[-1][2].outcomes[0].remaining
    outage = [began for began, _, decision in seen if decision.degraded]
    last = [d for began, _, d in seen if died - 1 <= began <= died]
    assert by_store - len(last) <= took <= by_store + len(outage)
    table.append(
        Row(
            "Sentinel: primary killed",
            "allow",
            "200 without rate headers until the replica is primary",
            max(seconds for began, seconds, _ in seen if began >= died),
            outage[-1] - died,
            tokens(took, by_store),
        )
    )
    store.close()
