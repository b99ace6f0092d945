"""A cluster that changes: slots that move, and nodes that die."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from functools import partial

import pytest

from flask_bucket.decisions import Decision
from flask_bucket.errors import StoreUnavailable
from flask_bucket.limits import Limit
from flask_bucket.stores.outage import OutageStore
from flask_bucket.stores.redis import RedisStore
from flask_bucket.stores.redis.cluster import slot
from tests.outage.cluster.conftest import DAY, HOUR, charge, patient, served_by
from tests.outage.service import ORDINARY, Stalls, at_once
from tests.outage.table import Row, tokens
from tests.servers import Cluster, Server, free_port, valkey_binary
from tests.test_forks import in_child


def move(cluster: Cluster, number: int, source: Server, target: Server) -> None:
    """Move a slot to another node, key by key, as redis-cli does."""
    with source.client() as giving, target.client() as taking:
        here, there = cluster.identity(source), cluster.identity(target)
        taking.execute_command("CLUSTER", "SETSLOT", number, "IMPORTING", here)
        giving.execute_command("CLUSTER", "SETSLOT", number, "MIGRATING", there)
        time.sleep(0.02)
        while keys := giving.execute_command("CLUSTER", "GETKEYSINSLOT", number, 1):
            giving.execute_command("MIGRATE", "127.0.0.1", target.port, keys[0], 0, 5000)
            time.sleep(0.02)
        for client in (taking, giving):
            client.execute_command("CLUSTER", "SETSLOT", number, "NODE", there)


def test_totals_are_exact_while_slots_move(cluster: Cluster, store: RedisStore) -> None:
    clients = [f"mover{i}" for i in range(12)]
    granted: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    over = threading.Event()

    def load(seed: int) -> None:
        chance = random.Random(seed)
        while not over.is_set() or min(refused[c] for c in clients) < 5:
            client = chance.choice(clients)
            # Two keys: while the slot moves, one may be here and the other there.
            decision = store.take([charge(client), charge(client, limit=HOUR)])
            (granted if decision else refused)[client] += 1
            time.sleep(0.002)

    def reshard() -> None:
        for client in clients:
            number = slot(f"{{{client}}}")
            at = next(i for i, (_, last) in enumerate(Cluster.SLOTS) if number <= last)
            source, target = cluster.primaries[at], cluster.primaries[(at + 1) % 3]
            move(cluster, number, source, target)
            move(cluster, number, target, source)
        over.set()

    at_once(reshard, *(partial(load, seed) for seed in range(3)))
    for client in clients:
        hour = store.peek([charge(client, 0, HOUR)]).outcomes[0]
        assert granted[client] == DAY.capacity
        assert hour.remaining >= HOUR.capacity - DAY.capacity


def rejected(node: Server) -> int:
    """Return how many charges a node turned away, as with MOVED."""
    with node.client() as client:
        stats = client.info("commandstats").get("cmdstat_evalsha", {})
    return int(stats.get("rejected_calls", 0))


def test_a_slot_that_has_moved_is_asked_for_at_its_new_node_from_then_on(
    cluster: Cluster, store: RedisStore
) -> None:
    client = served_by(0)
    number, (source, target, _) = slot(f"{{{client}}}"), cluster.primaries
    store.take([charge(client, 0)])
    move(cluster, number, source, target)
    before = rejected(source)
    for _ in range(3):
        assert store.take([charge(client)])
    assert rejected(source) == before + 1
    move(cluster, number, target, source)


def test_a_node_that_imports_a_slot_is_asked_again_if_it_lacks_the_script(
    cluster: Cluster, store: RedisStore
) -> None:
    client = served_by(0)
    number, (giving, taking, _) = slot(f"{{{client}}}"), cluster.primaries
    with giving.client() as source, taking.client() as target:
        target.script_flush()
        here, there = cluster.identity(giving), cluster.identity(taking)
        target.execute_command("CLUSTER", "SETSLOT", number, "IMPORTING", here)
        source.execute_command("CLUSTER", "SETSLOT", number, "MIGRATING", there)
        try:
            assert store.take([charge(client)]).outcomes[0].remaining == DAY.capacity - 1
        finally:
            for node in (source, target):
                node.execute_command("CLUSTER", "SETSLOT", number, "STABLE")


def test_a_node_that_does_not_know_its_own_address_is_reached_at_the_one_asked() -> None:
    """The only node of a cluster does not, since no other node has told it."""
    node = Server(valkey_binary(), "--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    try:
        with node.start().client() as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            while client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
                time.sleep(0.05)
            assert not client.execute_command("CLUSTER SLOTS")[0][2][0]
        store = patient(f"redis+cluster://127.0.0.1:{node.port}")
        assert store.take([charge("a")]).outcomes[0].remaining == DAY.capacity - 1
        store.close()
    finally:
        node.stop()


def test_a_primary_that_dies_is_the_trouble_of_its_own_clients(
    own_cluster: Cluster, table: list[Row], stalls: Stalls
) -> None:
    timeout, interval = 1.0, 0.3
    # The URL names the one that dies alone. The others are known from the map.
    url = f"redis+cluster://127.0.0.1:{own_cluster.primaries[1].port}"
    store = OutageStore(
        RedisStore.from_url(url, timeout=timeout, connect_timeout=20),
        "allow",
        recovery_interval=interval,
    )
    clients = [served_by(number) for number in range(3)]
    many = Limit.parse("100000/year")  # no token returns during the test
    decided: dict[str, list[tuple[float, float, Decision]]] = {client: [] for client in clients}

    def take(client: str) -> Decision:
        began = time.monotonic()
        decision = store.take([charge(client, limit=many)])
        decided[client].append((began, time.monotonic() - began, decision))
        return decision

    def load(client: str, over: threading.Event) -> None:
        while not over.is_set():
            take(client)
            time.sleep(0.002)

    over = threading.Event()
    died = 0.0

    def kill() -> None:
        nonlocal died
        time.sleep(0.5)
        own_cluster.primaries[1].kill()
        died = time.monotonic()
        deadline = died + 30
        while time.monotonic() < deadline:
            recent = decided[clients[1]][-1]
            if recent[0] > died + 1 and not recent[2].degraded:
                break
            time.sleep(0.02)
        over.set()

    at_once(kill, *(partial(load, client, over) for client in clients))
    for client in (clients[0], clients[2]):
        assert not any(decision.degraded for _, _, decision in decided[client])
    mine = decided[clients[1]]
    assert not mine[-1][2].degraded, "the replica did not take over"
    assert max(seconds for _, seconds, _ in mine) < timeout + ORDINARY + stalls.longest
    outage = [began for began, _, decision in mine if decision.degraded]
    by_store = sum(not decision.degraded for _, _, decision in mine)
    left = mine[-1][2].outcomes[0].remaining
    took = many.capacity - left
    # Tokens that the primary granted last, and had not sent to its replica, are granted again.
    last = [d for began, _, d in mine if died - 1 <= began <= died]
    assert by_store - len(last) <= took <= by_store + len(outage)
    table.append(
        Row(
            "cluster: a primary killed",
            "allow",
            "its clients: 200 without rate headers; others: nothing",
            max(seconds for began, seconds, _ in mine if began >= died),
            outage[-1] - died,
            tokens(took, by_store),
        )
    )
    store.close()


def test_no_node_at_all_is_an_outage() -> None:
    store = patient("redis+cluster://127.0.0.1:1,127.0.0.1:2")
    with pytest.raises(StoreUnavailable, match="no node tells"):
        store.take([charge("a")])
    with pytest.raises(StoreUnavailable):
        store.reset("a")
    store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_fork_beside_busy_threads_has_connections_of_its_own(
    cluster: Cluster, store: RedisStore
) -> None:
    over = threading.Event()

    def load(client: str) -> None:
        while not over.is_set():
            store.take([charge(client, limit=HOUR)])

    def fork() -> None:
        try:
            for _ in range(10):
                assert in_child(lambda: bool(store.take([charge(c, 0) for c in "abcdef"])))
        finally:
            over.set()

    at_once(fork, *(partial(load, client) for client in "abcd"))
