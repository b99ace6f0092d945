"""A cluster: charges over several nodes, slots that move, and a primary that dies."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import fakeredis
import pytest
import redis
from flask import Flask
from redis.exceptions import TryAgainError

from flask_bucket import Ban, Limiter, client_banned
from flask_bucket.decisions import Charge, Decision, Outcome
from flask_bucket.errors import StoreUnavailable
from flask_bucket.limits import Limit
from flask_bucket.stores.memory import MemoryStore
from flask_bucket.stores.outage import OutageStore
from flask_bucket.stores.redis import RedisStore
from flask_bucket.stores.redis.cluster import slot
from flask_bucket.stores.redis.links import Call, link_by
from tests.conftest import START
from tests.outage.service import ORDINARY, Stalls, at_once
from tests.outage.table import Row, tokens
from tests.servers import Cluster, Server, free_port, valkey_binary
from tests.test_forks import in_child

DAY = Limit.parse("20/day")
HOUR = Limit.parse("1000/hour")
TWO = Limit(2, 2)
REFUSALS = Limit(2, 2, 86_400)


def started() -> Iterator[Cluster]:
    made = Cluster(valkey_binary(), replicas=1)
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield from started()


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    """A cluster that a test may break."""
    yield from started()


@pytest.fixture
def store(cluster: Cluster) -> Iterator[RedisStore]:
    for node in cluster.primaries:
        with node.client() as client:
            client.flushall()
    made = patient(cluster.url)
    yield made
    made.close()


def patient(url: str) -> RedisStore:
    """Return a store that does not take a busy machine for a fault."""
    return RedisStore.from_url(url, timeout=10, connect_timeout=20)


def charge(client: str, cost: int = 1, limit: Limit = DAY) -> Charge:
    return Charge(limit, f"bucket:{{{client}}}:page:{limit.name}", cost)


def some(chance: random.Random, least: int, most: int) -> list[Charge]:
    """Return charges of several clients, which are in several slots."""
    return [
        charge(chance.choice("abcde"), chance.choice([0, 1, 1, 5, 12]), chance.choice([DAY, HOUR]))
        for _ in range(chance.randint(least, most))
    ]


def some_of_any_kind(chance: random.Random, least: int, most: int, ban: str) -> list[Charge]:
    """Return charges of several clients: rates, slots, maxima; and maybe a ban that counts some."""
    found = []
    for _ in range(chance.randint(least, most)):
        client, counts_for = chance.choice("abcde"), chance.choice([(), (ban,)])
        if chance.random() < 0.3:
            key = f"bucket:{{{client}}}:s:@two"
            member = chance.choice(["one", "two", "three"])
            found.append(
                Charge(TWO, key, kind="slot", member=member, lasts=10**9, counts_for=counts_for)
            )
        else:
            up_to = chance.choice([None, None, 3])
            asked = charge(client, chance.choice([0, 1, 5, 12]))
            found.append(replace(asked, up_to=up_to, counts_for=counts_for))
    if chance.random() < 0.7:
        found.append(Charge(REFUSALS, ban, kind="ban", lasts=7_200_000_000))
    return found


def but_for_slots(decision: Decision) -> Decision:
    """Leave out when slots are free: after giving back, the reply is not asked for again."""
    outcomes = [o._replace(reset_after=0.0) if o.kind == "slot" else o for o in decision.outcomes]
    return replace(decision, outcomes=tuple(outcomes))


def served_by(number: int) -> str:
    """Return a client whose buckets are on the primary of this number."""
    first, last = Cluster.SLOTS[number]
    return next(f"c{i}" for i in range(1000) if first <= slot(f"{{c{i}}}") <= last)


def calls(cluster: Cluster) -> int:
    total = 0
    for node in cluster.primaries:
        with node.client() as client:
            stats = client.info("commandstats")
            total += sum(
                stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha",)
            )
    return total


def test_one_client_is_one_call(cluster: Cluster, store: RedisStore) -> None:
    for client in "abc":
        store.take([charge(client)])
    before = calls(cluster)
    for client in "abc":
        assert store.take([charge(client), charge(client, limit=HOUR)], held=[charge(client, 0)])
    assert calls(cluster) == before + 3


@pytest.mark.parametrize("seed", range(4))
def test_over_several_slots_the_decision_is_that_of_one_call(seed: int, store: RedisStore) -> None:
    chance = random.Random(seed)
    reference, now = MemoryStore(clock=lambda: START), START

    for _ in range(80):
        now += chance.randint(0, 3_600_000_000)
        charges, shadow = some(chance, 1, 3), some(chance, 0, 2)
        held = [c for c in some(chance, 0, 2) if c.cost]
        reference.settle(held, now)
        store.settle(held, now)
        assert store.peek(charges, now) == reference.peek(charges, now)
        expected = reference.take(charges, held, shadow, now)
        assert store.take(charges, held, shadow, now) == expected


@pytest.mark.parametrize("seed", range(6))
def test_over_several_slots_all_kinds_are_decided_as_in_one_call(
    seed: int, store: RedisStore
) -> None:
    chance = random.Random(seed)
    reference, now = MemoryStore(clock=lambda: START), START
    began = 0
    for n in range(120):
        now += chance.randint(0, 1_200_000_000)
        ban = f"bucket:{{{chance.choice('ab')}}}:s:!ban"
        charges = some_of_any_kind(chance, 1, 3, ban)
        dry_ban = f"bucket:{{{chance.choice('abcde')}}}:dry:!ban"
        shadow = some_of_any_kind(chance, 0, 2, dry_ban)
        held = [replace(c, up_to=None) for c in some_of_any_kind(chance, 0, 2, ban) if c.cost]
        held = [replace(c, member=f"{n}-{i}") if c.member else c for i, c in enumerate(held)]
        if any(c.kind == "ban" for c in charges):  # a request is checked by a ban once
            held = [c for c in held if c.kind != "ban"]
        reference.settle(held, now)
        store.settle(held, now)
        looked = [replace(c, counts_for=()) for c in charges]
        told = reference.peek(looked, now)
        assert but_for_slots(store.peek(looked, now)) == but_for_slots(told)
        expected = reference.take(charges, held, shadow, now)
        answer = store.take(charges, held, shadow, now)
        assert but_for_slots(answer) == but_for_slots(expected)
        began += any(o.kind == "ban" and o.taken and not o.allowed for o in answer.outcomes)
    assert began


@pytest.mark.parametrize("seed", range(3))
def test_key_by_key_the_decision_is_that_of_one_call(seed: int) -> None:
    """Calls with more than one key are turned away now and then, as while a slot moves."""
    chance = random.Random(seed)
    reference, now = MemoryStore(lambda: START), START
    fake = fakeredis.FakeRedis(server=fakeredis.FakeServer())
    link = link_by(fake)

    def scattered(keys: int, *arguments: Any) -> Call:
        if len({*arguments[:keys]}) > 1 and chance.random() < 0.5:
            return turned_away
        return link.prepare(keys, *arguments)

    def turned_away() -> list[int]:
        raise TryAgainError("Multiple keys request during rehashing of slot")

    store = RedisStore(fake)
    slots = replace(link, prepare=scattered, slot=lambda key: "abcde".index(key[8]) // 2)
    store._use(slots, "bucket")
    for _ in range(150):
        now += chance.randint(0, 3_600_000_000)
        charges, shadow, held = some(chance, 1, 4), some(chance, 0, 3), some(chance, 0, 3)
        held = [c for c in held if c.cost]
        reference.settle(held, now)
        store.settle(held, now)
        assert store.peek(charges, now) == reference.peek(charges, now)
        expected = reference.take(charges, held, shadow, now)
        assert store.take(charges, held, shadow, now) == expected


def test_a_node_that_fails_gives_back_what_others_took(cluster: Cluster) -> None:
    store = patient(cluster.url)
    both = sorted((charge(served_by(0)), charge(served_by(2))), key=lambda c: slot(c.key))
    with cluster.primaries[0].client() as first, cluster.primaries[2].client() as second:
        first.flushall()
        second.flushall()
        store.take(both)
        second.delete(both[1].key)
        second.set(both[1].key, "something else")
        with pytest.raises(StoreUnavailable):
            store.take(both)
        second.delete(both[1].key)
    assert store.peek([both[0]]).outcomes[0].remaining == DAY.capacity - 2
    store.close()


def test_a_reset_finds_the_buckets_wherever_they_are(store: RedisStore) -> None:
    for client in "abcdef":
        store.take([charge(client), charge(client, limit=HOUR)])
    assert [store.reset(client) for client in "abcdefg"] == [2, 2, 2, 2, 2, 2, 0]


def test_a_reset_of_everything_finds_the_buckets_wherever_they_are(store: RedisStore) -> None:
    store.take([charge(client) for client in "abcdef"])
    assert [store.reset(), store.reset()] == [6, 0]


def test_a_client_of_the_user_s_is_asked_slot_by_slot(
    cluster: Cluster, store: RedisStore, caplog: pytest.LogCaptureFixture
) -> None:
    client = redis.RedisCluster(host="127.0.0.1", port=cluster.primaries[0].port, socket_timeout=5)
    mine = RedisStore(client)
    assert "sends a command that failed" in caplog.text
    assert mine.take([charge(c) for c in "abc"])
    assert not mine.take([charge("a"), charge("b"), charge("c", 20)])
    assert [o.remaining for o in store.peek([charge(c, 0) for c in "abc"]).outcomes] == [19] * 3
    assert mine.reset("a") == 1
    mine.close()


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


def test_bans_of_an_application_count_where_they_share_no_slot(
    cluster: Cluster, store: RedisStore
) -> None:
    """The limit is by address, its ban by tenant, and the Limiter's ban by address."""
    app, began = Flask("app"), list[str]()
    tenant = served_by(1)
    limiter = Limiter(app, redis=store, bans=Ban("3/day", "1 week", name="everywhere"))
    ban = Ban("2/day", "1 day", key_func=lambda: tenant, name="own")
    app.add_url_rule("/", "index", limiter.limit("1/day", ban=ban)(lambda: "fine"))
    app.add_url_rule("/other", "other", limiter.limit("9/day")(lambda: "fine"))

    def note(sender: Flask, outcome: Outcome, **_: object) -> None:
        began.append(outcome.limit.name)

    def ask(path: str) -> tuple[int, str | None]:
        environ = {"REMOTE_ADDR": address}
        response = app.test_client().get(path, environ_base=environ)
        return response.status_code, response.headers.get("Retry-After")

    address = next(f"10.0.0.{n}" for n in range(100) if slot(f"{{10.0.0.{n}}}") < 5_000)
    with client_banned.connected_to(note):
        assert ask("/") == (200, None)
        assert ask("/")[0] == 429
        assert began == []
        assert ask("/")[0] == 429  # begins the rule's ban
        assert began == ["own"]
        assert ask("/")[0] == 429  # counts for none
        assert ask("/other") == (200, None)
    address = next(f"10.0.1.{n}" for n in range(100) if slot(f"{{10.0.1.{n}}}") > 12_000)
    status, wait = ask("/")
    assert (status, int(wait or 0) > 86_000) == (429, True)  # the tenant is banned at any address
    limiter_bans = [key for key in everything(cluster) if key.endswith(":@limiter:!everywhere")]
    assert len(limiter_bans) == 1  # of the first address, with two refusals counted


def everything(cluster: Cluster) -> list[str]:
    """Return all keys."""
    keys: list[str] = []
    for node in cluster.primaries:
        with node.client() as client:
            keys += [key.decode() for key in client.scan_iter()]
    return keys
