"""Inspection: the commands' questions to a server.

It is kept apart from the store, which stays small. It works on a cluster too: every primary is
searched for keys, and no command names two keys.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from redis.exceptions import NoPermissionError, RedisError, ResponseError

from ...bucket import Kept, State
from ...decisions import Kind
from ...errors import ConfigError
from ...keys import KeyParts, keys_start
from ...limits import SECOND, Limit
from ..base import Store, innermost
from . import scanning
from .options import Waits
from .replies import FAILURES, scan_literal, translated
from .scanning import batches, primaries, text
from .store import RedisStore


@dataclass(frozen=True, slots=True)
class Node:
    """One server's report about itself. None stands for what it does not tell."""

    name: str
    engine: str
    version: tuple[int, ...]
    #: How far its clock is ahead of ours, in seconds.
    clock_offset: float
    #: Bytes that it may use and uses; 0 for no bound.
    max_memory: int | None
    used_memory: int
    #: Its policy for a full memory, such as "noeviction".
    eviction: str | None
    #: Whether it writes snapshots, and whether it writes a log of commands.
    snapshots: bool | None
    log: bool


@dataclass(frozen=True, slots=True)
class Stored:
    """The contents of a key."""

    key: str
    kept: Kept
    #: The limit of the last charge, if it was noted. Neither key nor application tells it.
    noted: Limit | None = None


class RedisServer:
    """The server, or the cluster, behind a store; asked through the store's own client.

    Every method raises StoreUnavailable if there is no answer.
    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    @classmethod
    def behind(cls, store: Store) -> RedisServer | None:
        """Return the server that keeps a store's buckets; None if they are in this process."""
        kept = innermost(store)
        return cls(kept) if isinstance(kept, RedisStore) else None

    @property
    def _redis(self) -> Any:
        return self._store.client  # that of a cluster connects when it is made

    def clock(self) -> int:
        """Return the server's time in microseconds."""
        with _translated():
            return _now(primaries(self._redis)[0])

    def round_trip(self, tries: int = 5) -> float:
        """Return the seconds that a call takes: the median, the first connects."""
        with _translated():
            self._redis.ping()
            times = []
            for _ in range(tries):
                start = time.perf_counter()
                self._redis.ping()
                times.append(time.perf_counter() - start)
        return sorted(times)[tries // 2]

    def buckets(self, client: str | None = None, kind: Kind | None = None) -> Iterator[Stored]:
        """Yield what is kept under the store's prefix, in no order.

        :param client: only this client's, spelled as in its keys.
        :param kind: only those of this kind.
        """
        with _translated():
            found = scanning.keys(self._redis, keys_start(self._store.key_prefix, client))
            if kind is not None:
                found = (key for key in found if _kind(key) == kind)
            for keys in batches(found):
                with self._redis.pipeline(transaction=False) as pipe:
                    for key in keys:
                        if _kind(key) == "slot":
                            pipe.zrange(key, 0, -1, withscores=True)
                        else:
                            pipe.hmget(key, "tokens", "last_refill", "scale", "limit")
                    replies = pipe.execute(raise_on_error=False)
                yield from _states(keys, replies)

    def may_not(self, probe: str) -> list[str]:
        """Return the server commands that are needed here, but that its ACL forbids.

        :param probe: a key that is nobody's.
        """
        forbidden = []
        with _translated():
            for name, arguments in (
                ("SCAN", (0, "MATCH", scan_literal(probe))),
                ("UNLINK", (probe,)),
                ("HMGET", (probe, "tokens")),
            ):
                try:
                    for node in primaries(self._redis) if name == "SCAN" else [self._redis]:
                        node.execute_command(name, *arguments)
                except NoPermissionError:
                    forbidden.append(name)
                except ResponseError:
                    continue  # it may, and something else is wrong: a replica, full memory
        return forbidden

    def nodes(self) -> list[Node]:
        """Return the report of each server that holds buckets."""
        with _translated():
            return [_node(node) for node in primaries(self._redis)]

    def waits(self) -> Waits | None:
        """Return how a client that was handed in waits; None for connections of our own."""
        if not self._store._link.is_handed_in:
            return None
        with _translated():
            return Waits.of(self._redis)


def _node(node: Any) -> Node:
    info = {text(name): value for name, value in node.info().items()}
    start = time.time()
    clock = _now(node) / SECOND
    offset = clock - (start + time.time()) / 2
    is_valkey = "valkey_version" in info or info.get("server_name") == "valkey"
    version = str(info.get("valkey_version" if is_valkey else "redis_version", "0"))
    save = _setting(node, "save")
    place = node.connection_pool.connection_kwargs
    # Of a primary that sentinels named, only itself knows where it is.
    port = place.get("port") or info.get("tcp_port")
    return Node(
        name=place.get("path") or f"{place.get('host', 'primary')}:{port}",
        engine="Valkey" if is_valkey else "Redis",
        version=tuple(int(part) for part in re.findall(r"\d+", version)),
        clock_offset=offset,
        max_memory=info.get("maxmemory"),
        used_memory=info.get("used_memory", 0),
        eviction=info.get("maxmemory_policy"),
        snapshots=None if save is None else bool(save),
        log=bool(info.get("aof_enabled")),
    )


def _setting(node: Any, name: str) -> str | None:
    """Return a setting, or None where asking for it is forbidden, as hosted servers do."""
    try:
        found = {text(key): text(value) for key, value in node.config_get(name).items()}
    except (NoPermissionError, ResponseError):
        return None
    return found.get(name)


def _now(node: Any) -> int:
    seconds, microseconds = node.time()
    return int(seconds) * SECOND + int(microseconds)


def _kind(key: str) -> Kind | None:
    parts = KeyParts.of(key)
    return None if parts is None else parts.kind


def _states(keys: Iterable[str], replies: Iterable[Any]) -> Iterator[Stored]:
    for key, reply in zip(keys, replies, strict=True):
        if isinstance(reply, ResponseError):
            continue  # not a bucket: the limiter says so in the log
        if isinstance(reply, RedisError):
            raise reply
        if _kind(key) == "slot":
            yield Stored(key, {text(who): int(free) for who, free in reply})
            continue
        *fields, noted = reply
        try:
            state = State(*map(int, fields))
        except TypeError:
            continue  # it expired in between
        yield Stored(key, state, _noted(noted, state))


def _noted(written: Any, state: State) -> Limit | None:
    """Read the limit that was noted with a bucket.

    None if another limit was charged since: that one did not write its own text over it.
    """
    if written is None:
        return None
    try:
        limit = Limit.parse(text(written))
    except ConfigError:  # of a later version, or written by hand
        return None
    return limit if limit.scale == state.scale else None


@contextmanager
def _translated() -> Iterator[None]:
    """Raise what the client library raises as StoreUnavailable."""
    try:
        yield
    except FAILURES as error:
        raise translated(error) from error
