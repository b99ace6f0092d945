"""Clusters, and stores and charges of several clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flask_bucket.decisions import Charge
from flask_bucket.limits import Limit
from flask_bucket.stores.redis import RedisStore
from flask_bucket.stores.redis.cluster import slot
from tests.servers import Cluster, valkey_binary

DAY = Limit.parse("20/day")
HOUR = Limit.parse("1000/hour")


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


def served_by(number: int) -> str:
    """Return a client whose buckets are on the primary of this number."""
    first, last = Cluster.SLOTS[number]
    return next(f"c{i}" for i in range(1000) if first <= slot(f"{{c{i}}}") <= last)
