"""Every fault under every policy, on a real server: what clients see, and what it costs."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from tests.outage.faults import NUISANCES, OUTAGES, World
from tests.outage.service import (
    CAPACITY,
    INTERVAL,
    ORDINARY,
    POLICIES,
    SHARE,
    TIMEOUT,
    Seen,
    Service,
    Stalls,
    at_once,
    slow,
)
from tests.outage.table import Row, saw, tokens

#: Seconds that a fault lasts: two tries at least.
LASTS = 2.4 * INTERVAL


@pytest.fixture
def services(world: World) -> Iterator[dict[str, Service]]:
    """A worker under each policy, each of which reached the server once."""
    made = {policy: Service(world.proxy.url, policy) for policy in POLICIES}
    for policy, service in made.items():
        service.recover()  # which is at once, unless the machine stands still
        assert service.get(f"counted-{policy}").decided_by_store
    yield made
    for service in made.values():
        service.close()


def load(services: dict[str, Service], seconds: float) -> float:
    """Send requests to all, to each one after another; return the seconds that took."""
    began = time.monotonic()

    def send(service: Service) -> None:
        sent = 0
        while time.monotonic() < began + seconds or sent < 2 * SHARE * CAPACITY:
            service.get(f"counted-{service.policy}")
            sent += 1
            time.sleep(0.01)

    at_once(*(partial(send, service) for service in services.values()))
    return time.monotonic() - began


def taken(world: World, client: str) -> int:
    """Return the tokens that a client's bucket lacks on the server."""
    with world.server.client() as admin:
        key = next(iter(admin.scan_iter(f"*{{{client}}}*", count=100_000)), None)
        if key is None:
            return 0
        left, scale = (int(field) for field in admin.hmget(key, "tokens", "scale"))
    return CAPACITY - left // scale


def granted(service: Service, client: str) -> int:
    """Return how many requests of a client the store allowed."""
    mine = [seen for seen in service.seen if seen.client == client and seen.status == 200]
    return sum(seen.decided_by_store for seen in mine)


def keeps_to(policy: str, seen: list[Seen]) -> bool:
    """Return whether one client's responses are those of the policy."""
    statuses = Counter(one.status for one in seen)
    if policy == "allow":
        return set(statuses) == {200}
    if policy == "deny":
        return set(statuses) == {503} and all("Retry-After" in one.headers for one in seen)
    share = min(len(seen), int(SHARE * CAPACITY))
    return statuses == Counter({200: share, 429: len(seen) - share})


@pytest.mark.parametrize("fault", OUTAGES)
def test_in_an_outage_the_policy_decides(
    fault: str,
    world: World,
    services: dict[str, Service],
    table: list[Row],
    stalls: Stalls,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "flask_bucket")
    before = {policy: len(service.seen) for policy, service in services.items()}
    with OUTAGES[fault](world):
        lasted = load(services, LASTS)
        during = {policy: service.seen[before[policy] :] for policy, service in services.items()}
        health = {policy: service.health() for policy, service in services.items()}
    ended = time.monotonic()
    recovered: dict[str, float] = {}

    def recover(service: Service) -> None:
        service.recover()
        recovered[service.policy] = time.monotonic() - ended

    at_once(*(partial(recover, service) for service in services.values()))

    for policy, service in services.items():
        client, seen = f"counted-{policy}", during[policy]
        tries = 1 + math.ceil(lasted / INTERVAL)
        assert not any(one.decided_by_store for one in seen)
        assert keeps_to(policy, seen)
        assert max(one.seconds for one in service.seen) < TIMEOUT + ORDINARY + stalls.longest
        assert len(slow(seen)) <= tries + stalls.count
        assert health[policy].state == "degraded"
        assert health[policy].reason
        assert recovered[policy] < 2 * INTERVAL + 2 * ORDINARY + stalls.longest
        took, gave = taken(world, client), granted(service, client)
        assert gave - CAPACITY <= took <= gave + tries
        worst = max(one.seconds for one in seen)
        row = Row(fault, policy, saw(seen), worst, recovered[policy], tokens(took, gave))
        table.append(row)
    lines = [record.getMessage() for record in caplog.records if record.name == "flask_bucket"]
    began = sum("out of reach" in line for line in lines)
    assert began == sum("answers again" in line for line in lines)
    assert len(lines) == 2 * began
    # Where the machine stood still for long, it caused one more.
    assert len(services) <= began <= len(services) + stalls.count


@pytest.mark.parametrize("fault", NUISANCES)
def test_a_nuisance_is_got_over(
    fault: str,
    world: World,
    services: dict[str, Service],
    table: list[Row],
    stalls: Stalls,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "flask_bucket")
    before = {policy: len(service.seen) for policy, service in services.items()}
    with NUISANCES[fault](world):
        load(services, INTERVAL)
    for policy, service in services.items():
        client, seen = f"counted-{policy}", service.seen[before[policy] :]
        took, gave = taken(world, client), granted(service, client)
        if not stalls.count:
            assert all(one.decided_by_store and one.status == 200 for one in seen)
        assert gave <= took <= gave + stalls.count
        worst = max(one.seconds for one in seen)
        table.append(Row(fault, policy, saw(seen), worst, None, tokens(took, gave)))
    assert len(caplog.records) <= 2 * len(services) * stalls.count


def test_a_connection_whose_other_end_is_lost_costs_one_timeout(
    world: World, table: list[Row], stalls: Stalls
) -> None:
    service = Service(world.proxy.url)
    service.recover()
    assert service.get().decided_by_store
    world.proxy.half_open()
    began = time.monotonic()
    seen = service.get()
    assert (seen.status, seen.decided_by_store) == (200, False)
    assert seen.seconds < TIMEOUT + ORDINARY + stalls.longest
    service.recover()
    recovered = time.monotonic() - began - seen.seconds
    assert recovered < 2 * INTERVAL + 2 * ORDINARY + stalls.longest
    assert taken(world, "alice") == 1
    table.append(
        Row("half-open connection", "allow", saw([seen]), seen.seconds, recovered, "exact")
    )
    service.close()


def test_one_unreadable_bucket_is_one_client_s_trouble(
    world: World,
    services: dict[str, Service],
    table: list[Row],
    stalls: Stalls,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with world.server.client() as admin:
        for policy in services:
            key = next(iter(admin.scan_iter(f"*{{counted-{policy}}}*")))
            admin.delete(key)
            admin.set(key, "something else")
    for policy, service in services.items():
        before = len(service.seen)
        for _ in range(20):
            service.get(f"counted-{policy}")
            service.get("other")
        seen = [one for one in service.seen[before:] if one.client != "other"]
        others = [one for one in service.seen[before:] if one.client == "other"]
        assert keeps_to(policy, seen)
        assert all(one.decided_by_store for one in others) or stalls.count
        assert service.health().state == "ok" or stalls.count
        worst = max(one.seconds for one in seen)
        table.append(Row("WRONGTYPE on one key", policy, saw(seen), worst, None, "none taken"))
    lines = [r.getMessage() for r in caplog.records if "cannot be read" in r.getMessage()]
    assert len(lines) <= 2 * len(services)


def test_the_wait_for_a_connection_is_part_of_the_timeout(
    world: World, table: list[Row], stalls: Stalls
) -> None:
    service = Service(world.proxy.url, options={"BUCKET_MAX_CONNECTIONS": 1})
    service.recover()
    before = len(service.seen)
    world.proxy.latency = 0.6 * TIMEOUT
    at_once(*[service.get] * 8)
    world.proxy.latency = 0
    seen = service.seen[before:]
    assert {one.status for one in seen} == {200}
    assert sum(one.decided_by_store for one in seen) == 1 or stalls.count
    assert max(one.seconds for one in seen) < TIMEOUT + ORDINARY + stalls.longest
    assert world.proxy.connections <= 1
    recovered = service.recover()
    worst = max(one.seconds for one in seen)
    tokens_left = tokens(taken(world, "alice"), granted(service, "alice"))
    table.append(Row("pool full", "allow", saw(seen), worst, recovered, tokens_left))
    service.close()


def test_threads_that_are_on_their_way_when_it_begins_wait_one_timeout_each(
    world: World, stalls: Stalls
) -> None:
    service = Service(world.proxy.url)
    at_once(*[service.get] * 8)
    before = len(service.seen)
    world.server.freeze()
    at_once(*[service.get] * 8)
    first = service.seen[before:]
    assert max(one.seconds for one in first) < TIMEOUT + ORDINARY + stalls.longest
    at_once(*[service.get] * 8)
    assert len(slow(service.seen[before + 8 :])) <= 1 + 8 * stalls.count
    world.server.thaw()
    service.recover()
    service.close()
