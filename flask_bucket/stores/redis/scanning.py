"""Scanning: finding the keys on a server or in a cluster, and forgetting them.

Waits for no other key: SCAN goes through them in small steps, and UNLINK frees memory in the
background.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import redis

from .replies import scan_literal

#: Keys asked for in one round trip. With SCAN, a hint.
_BATCH = 1000


def primaries(client: Any) -> Sequence[Any]:
    """Return a client for each server that holds keys: of a cluster, for each primary."""
    if not isinstance(client, redis.RedisCluster):
        return [client]
    nodes = client.get_primaries()  # type: ignore[no-untyped-call]  # redis-py has no types here
    return [client.get_redis_connection(node) for node in nodes]


def keys(client: Any, start: str) -> Iterator[str]:
    """Yield the keys that begin with a text, in no order; some of them may come twice."""
    for node in primaries(client):
        for key in node.scan_iter(match=scan_literal(start) + "*", count=_BATCH):
            # A pattern finds what it should; but what is removed is gone for good.
            if (found := text(key)).startswith(start):
                yield found


def forget(client: Any, start: str) -> int:
    """Remove the keys that begin with a text, and return how many there were."""
    removed = 0
    for some in batches(keys(client, start)):
        with client.pipeline(transaction=False) as pipe:
            for key in some:
                pipe.unlink(key)
            removed += sum(pipe.execute())
    return removed


def batches(found: Iterable[str]) -> Iterator[list[str]]:
    """Yield keys in lists for one round trip each."""
    iterator = iter(found)
    while batch := list(islice(iterator, _BATCH)):
        yield batch


def text(value: Any) -> str:
    """Return a text that a server sent, whatever its bytes."""
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(value)
