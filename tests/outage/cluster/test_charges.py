"""A cluster: charges over several nodes are decided as in one call."""

from __future__ import annotations

import random
from dataclasses import replace
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
from flask_bucket.stores.redis import RedisStore
from flask_bucket.stores.redis.cluster import slot
from flask_bucket.stores.redis.links import Call, link_by
from tests.conftest import START
from tests.outage.cluster.conftest import DAY, HOUR, charge, patient, served_by
from tests.servers import Cluster

TWO = Limit(2, 2)
REFUSALS = Limit(2, 2, 86_400)


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
    return decision._replace(outcomes=tuple(outcomes))


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
