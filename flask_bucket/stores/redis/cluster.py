"""Cluster: which node serves which slot, and a pool of connections to each node."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from redis import exceptions
from redis.crc import key_slot

from .connections import Address
from .pool import Change, Pool, packed

SLOTS = 16384

#: How often one call follows a redirection. Each says that nothing was done.
REDIRECTIONS = 5

LEARN, ASKING = packed("CLUSTER", "SLOTS"), packed("ASKING")


class _Never(Exception):  # noqa: N818  # not raised
    """What no command is answered with, for those that have no other way to go."""


class Cluster:
    """The nodes of a cluster. The map of slots is learned from them, and corrected by them.

    redis-py's own client reads the map anew inside the request that finds a node dead, from node
    after node with a timeout for each; here that is left to the next one, within its own timeout.

    :param pool: makes the connections to a node.
    :param nodes: those to ask first.
    :param timeout: seconds that a call may take in all.
    """

    def __init__(
        self, pool: Callable[[Address], Pool], nodes: Sequence[Address], timeout: float
    ) -> None:
        self._make = pool
        self._timeout = timeout
        self._nodes = tuple(nodes)
        self._pools: dict[Address, Pool] = {}
        self._map: list[Address | None] = [None] * SLOTS
        self._stale = True
        self._learning = Lock()

    def node(self, key: str) -> Address | None:
        """Return the node that serves a key, as far as is known."""
        return self._map[slot(key)]

    def run(self, key: str, command: bytes, failing: type[Exception], otherwise: Change) -> Any:
        """Send a command to the node that serves a key, and return its reply. See `Pool.run`."""
        deadline = time.monotonic() + self._timeout
        if self._stale:
            self._learn(deadline)
        at = slot(key)
        node = self._map[at]
        if node is None:
            self._stale = True
            raise exceptions.ClusterDownError(f"no node serves slot {at}")
        asking: bytes | None = None
        for _ in range(REDIRECTIONS):
            try:
                return self._pool(node).run(command, failing, otherwise, deadline, asking)
            except exceptions.MovedError as moved:
                node, asking = _target(moved, node), None
                self._map[at] = node
            except exceptions.AskError as ask:
                node, asking = _target(ask, node), ASKING
            except (exceptions.ConnectionError, exceptions.TimeoutError) as error:
                self._stale = True
                self._ask_last(node)
                raise type(error)(f"{error} (node {node[0]}:{node[1]})") from error
            except exceptions.ClusterDownError:
                self._stale = True
                raise
        raise exceptions.ClusterError(f"slot {at} was redirected {REDIRECTIONS} times")

    def close(self) -> None:
        for pool in tuple(self._pools.values()):
            pool.close()

    def _pool(self, node: Address) -> Pool:
        pool = self._pools.get(node)
        return self._pools.setdefault(node, self._make(node)) if pool is None else pool

    def _learn(self, deadline: float) -> None:
        """Learn the map; others go by the one there is, meanwhile."""
        first = self._map[0] is None and not any(self._map)
        if not self._learning.acquire(timeout=self._timeout if first else 0):
            return
        try:
            if self._stale:
                self._map = self._learned(deadline)
                self._stale = False
                self._forget()
        finally:
            self._learning.release()

    def _learned(self, deadline: float) -> list[Address | None]:
        said = []
        for node in self._nodes:
            now = time.monotonic()
            try:
                # Half of the time left for each, so that there is some left for the charge.
                ends = now + (deadline - now) / 2
                return _parsed(self._pool(node).run(LEARN, _Never, bytes, ends), node)
            except exceptions.RedisError as error:
                said.append(f"{node[0]}:{node[1]}: {error}")
                self._ask_last(node)
        raise exceptions.ConnectionError(f"no node tells of the cluster ({'; '.join(said)})")

    def _ask_last(self, node: Address) -> None:
        self._nodes = (*(n for n in self._nodes if n != node), node)

    def _forget(self) -> None:
        """Close connections to nodes that serve nothing any more; remember those that do."""
        serving = {node for node in self._map if node is not None}
        self._nodes = (*self._nodes, *sorted(serving.difference(self._nodes)))
        for node in [node for node in self._pools if node not in serving]:
            self._pools.pop(node).close()


def slot(key: str) -> int:
    """Return the slot of a key: the part in braces decides."""
    return key_slot(key.encode())


def _parsed(answer: Any, asked: Address) -> list[Address | None]:
    served: list[Address | None] = [None] * SLOTS
    for first, last, primary, *_ in answer:
        # A node that does not know its own address leaves it out.
        host = primary[0].decode() if primary[0] else asked[0]
        served[first : last + 1] = [(host, primary[1])] * (last + 1 - first)
    return served


def _target(redirection: exceptions.AskError, asked: Address) -> Address:
    return redirection.host or asked[0], int(redirection.port)
