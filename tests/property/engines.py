"""The stores to be tested, one of every kind, and a look at what each really keeps."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import fakeredis
import pytest
import redis

from flask_bucket.bucket import State
from flask_bucket.decisions import Charge, Decision
from flask_bucket.stores.base import Store
from flask_bucket.stores.memory import MemoryStore
from flask_bucket.stores.redis import RedisStore
from tests.conftest import START, running
from tests.servers import ENGINES, Server

#: Comma-separated names of the only stores to try; all of them when unset.
CHOSEN = frozenset(filter(None, os.environ.get("PROPERTY_ENGINES", "").split(",")))

#: Seconds to wait for a reply: no test here is about a slow server.
PATIENCE = 60

#: Calls made to each kind of store, for the terminal's summary.
CALLS: Counter[str] = Counter()

#: The version that each engine names, once it was used.
VERSIONS: dict[str, str] = {}


class Subject(Protocol):
    """A store that can be asked what it keeps."""

    name: str
    store: Store

    def kept(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return the stored buckets, as they are stored."""

    def kept_for(self, keys: Sequence[str]) -> tuple[dict[str, Any], dict[str, int | None]]:
        """Return the stored buckets and their TTLs in milliseconds, None for one without.

        Both come in one call, for speed.
        """

    def put(self, states: dict[str, Any], keys: Sequence[str]) -> None:
        """Store these buckets, and nothing else under these keys."""

    def forget(self) -> None:
        """Drop all buckets."""

    def clock(self) -> int:
        """Return the store's own time in microseconds."""


class MemorySubject:
    name = "memory"

    def __init__(self) -> None:
        self._memory = MemoryStore(clock=lambda: START)
        self.store: Store = Counted(self.name, self._memory)

    def kept(self, keys: Sequence[str]) -> dict[str, Any]:
        return {k: self._memory._states[k] for k in keys if k in self._memory._states}

    def kept_for(self, keys: Sequence[str]) -> tuple[dict[str, Any], dict[str, int | None]]:
        states, expires = self.kept(keys), self._memory._expires
        return states, {key: (expires[key] - START) // 1000 for key in states}

    def put(self, states: dict[str, Any], keys: Sequence[str]) -> None:
        self.forget()
        for key, state in states.items():
            self._memory._states[key], self._memory._expires[key] = state, START + 10**12

    def forget(self) -> None:
        self._memory.close()

    def clock(self) -> int:
        return START


#: Returns what each key holds, and its TTL in milliseconds. A pipeline of commands would take the
#: client longer than all else that a property test does.
LOOK = """
local found = {}
for i, key in ipairs(KEYS) do
  if redis.call('TYPE', key).ok == 'zset' then
    found[2 * i - 1] = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  else
    found[2 * i - 1] = redis.call('HMGET', key, 'tokens', 'last_refill', 'scale')
  end
  found[2 * i] = redis.call('PTTL', key)
end
return found
"""


class RedisSubject:
    FIELDS = ("tokens", "last_refill", "scale")

    def __init__(self, name: str, store: RedisStore, client: redis.Redis) -> None:
        self.name, self.client = name, client
        self.store: Store = Counted(name, store)
        self._look = client.register_script(LOOK)

    def kept(self, keys: Sequence[str]) -> dict[str, Any]:
        return self._states(keys, self._look(keys=keys)[::2])

    def kept_for(self, keys: Sequence[str]) -> tuple[dict[str, Any], dict[str, int | None]]:
        replies = self._look(keys=keys)
        left = zip(keys, replies[1::2], strict=True)
        ttls = {key: None if ms == -1 else ms for key, ms in left if ms != -2}
        return self._states(keys, replies[::2]), ttls

    def put(self, states: dict[str, Any], keys: Sequence[str]) -> None:
        pipeline = self.client.pipeline(transaction=False)
        pipeline.delete(*keys)
        for key, state in states.items():
            if not isinstance(state, State):
                pipeline.zadd(key, dict(state))
                continue
            fields = (state.tokens, state.last_refill, state.scale)
            pipeline.hset(key, mapping=dict(zip(self.FIELDS, fields, strict=True)))
        pipeline.execute()

    def forget(self) -> None:
        self.client.flushdb()

    def clock(self) -> int:
        seconds, rest = self.client.time()
        return int(seconds) * 1_000_000 + int(rest)

    def _states(self, keys: Sequence[str], rows: list[Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, row in zip(keys, rows, strict=True):
            if len(row) % 2 == 0:  # the three fields of a hash are an odd number
                pairs = zip(row[::2], row[1::2], strict=True)
                found[key] = {who.decode(): int(free) for who, free in pairs}
            elif row != [None, None, None]:
                # The text is compared first: '1e+15' is the same number, but a corrupted balance.
                numbers = [int(field) for field in row]
                assert [b"%d" % n for n in numbers] == row, f"{key} holds {row}"
                found[key] = State(*numbers)
        return found


class Counted:
    """A store that counts the calls made to it."""

    def __init__(self, name: str, store: Store) -> None:
        self._name, self._store = name, store

    def take(
        self,
        charges: Sequence[Charge],
        held: Sequence[Charge] = (),
        shadow: Sequence[Charge] = (),
        now: int | None = None,
    ) -> Decision:
        CALLS[self._name] += 1
        return self._store.take(charges, held, shadow, now)

    def peek(self, charges: Sequence[Charge], now: int | None = None) -> Decision:
        CALLS[self._name] += 1
        return self._store.peek(charges, now)

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        CALLS[self._name] += 1
        self._store.settle(charges, now)

    def reset(self, client: str | None = None, key_prefix: str | None = None) -> int:
        CALLS[self._name] += 1
        return self._store.reset(client, key_prefix)

    def close(self) -> None:
        self._store.close()


def subject(name: str, servers: dict[str, Server]) -> Subject:
    """Return an empty store of a kind, by its name; skip the test where its server is missing."""
    if CHOSEN and name not in CHOSEN:
        pytest.skip(f"{name} was not chosen")
    if name == "memory":
        return MemorySubject()
    if name == "fakeredis":
        fake = fakeredis.FakeRedis(server=fakeredis.FakeServer())
        VERSIONS.setdefault(name, f"fakeredis {fakeredis.__version__}")
        return RedisSubject(name, RedisStore(fake), fake)
    server = running(servers, name)
    client = redis.Redis(port=server.port, socket_timeout=PATIENCE)
    if name not in VERSIONS:
        about = client.info("server")
        VERSIONS[name] = (
            f"Valkey {about['valkey_version']}"
            if "valkey_version" in about
            else f"Redis {about['redis_version']}"
        )
    made = RedisSubject(name, RedisStore.from_url(server.url, timeout=PATIENCE), client)
    made.forget()
    return made


def close(made: Subject) -> None:
    made.store.close()
    if isinstance(made, RedisSubject):
        made.client.close()


def milliseconds() -> int:
    return time.monotonic_ns() // 1_000_000


#: All kinds of stores.
NAMES = ("memory", "fakeredis", *ENGINES)
