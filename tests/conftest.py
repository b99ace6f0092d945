"""Fixtures: servers of every engine, stores on them, and words of the domain."""

from __future__ import annotations

from collections.abc import Iterator

import fakeredis
import pytest

from flask_bucket.stores.base import Store
from flask_bucket.stores.memory import MemoryStore
from flask_bucket.stores.redis import RedisStore
from tests.servers import ENGINES, Server

#: The files that take longest, by the beginnings of their paths. Processes that run tests beside
#: each other begin with these. Otherwise one would still work in the end, and the others not.
LONGEST = (
    "tests/property/test_machine",
    "tests/browser/",
    "tests/outage/",
    "tests/property/",
    "tests/example_app",
    "tests/test_embedded",
    "tests/histories/",
    "tests/test_leases_served",
    "tests/cli/",
)

#: Where tests that pass the time in begin, in microseconds.
START = 1_700_000_000_000_000


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # of pytest-xdist
        items.sort(key=rank)


def rank(item: pytest.Item) -> int:
    """Return how late the processes that run tests beside each other begin with this one."""
    places = [place for place, path in enumerate(LONGEST) if item.nodeid.startswith(path)]
    return min(places, default=len(LONGEST))


@pytest.fixture(scope="session")
def servers() -> Iterator[dict[str, Server]]:
    """The running servers by engine; each is started when it is first asked for."""
    running: dict[str, Server] = {}
    yield running
    for server in running.values():
        server.stop()


def running(servers: dict[str, Server], engine: str) -> Server:
    if engine not in servers:
        servers[engine] = Server(ENGINES[engine]()).start()
    return servers[engine]


@pytest.fixture(params=list(ENGINES))
def server(request: pytest.FixtureRequest, servers: dict[str, Server]) -> Server:
    """An empty server of each engine in turn, shared between tests: do not hurt it."""
    found = running(servers, request.param)
    with found.client() as client:
        client.flushall()
    return found


@pytest.fixture
def valkey(servers: dict[str, Server]) -> Server:
    """An empty Valkey, shared between tests: do not hurt it."""
    found = running(servers, "valkey")
    with found.client() as client:
        client.flushall()
    return found


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A Valkey of the test's own, to be hurt."""
    server = Server(ENGINES["valkey"]()).start()
    yield server
    server.stop()


@pytest.fixture(params=["memory", "fakeredis", *ENGINES])
def store(request: pytest.FixtureRequest, servers: dict[str, Server]) -> Iterator[Store]:
    """An empty store of every kind and engine in turn."""
    made: Store
    if request.param == "memory":
        made = MemoryStore(clock=lambda: START)
    elif request.param == "fakeredis":
        made = RedisStore(fakeredis.FakeRedis(server=fakeredis.FakeServer()))
    else:
        server = running(servers, request.param)
        with server.client() as client:
            client.flushall()
        made = RedisStore.from_url(server.url, timeout=5)
    yield made
    made.close()
