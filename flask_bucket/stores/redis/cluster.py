"""Cluster: which node serves which slot, and a pool of connections to each node."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from redis import exceptions
from redis.crc import key_slot

from ... import forks
from ...errors import Connecting
from .dialing import Address, Dialer, address
from .maker import Maker
from .pool import Change, Pool
from .wire import packed

SLOTS = 16384

#: How often one call follows a redirection. Each says that nothing was done.
REDIRECTIONS = 5

LEARN, ASKING = packed("CLUSTER", "SLOTS"), packed("ASKING")

#: The node that serves each slot, where that is known.
Map = list[Address | None]


class Cluster:
    """The nodes of a cluster. The map of slots is learned from them, and corrected by them.

    :param pool: makes the connections to a node.
    :param dialer: makes what connects to a node, to learn the map from it.
    :param nodes: those to ask first.
    :param timeout: seconds that a call may take in all.
    :param connect_timeout: seconds that learning the map may take, in the background.
    """

    def __init__(
        self,
        pool: Callable[[Address], Pool],
        dialer: Callable[[Address], Dialer],
        nodes: Sequence[Address],
        timeout: float,
        connect_timeout: float,
    ) -> None:
        self._make_pool, self._dialer = pool, dialer
        self._timeout, self._connect_timeout = timeout, connect_timeout
        self._nodes = tuple(nodes)
        self._pools: dict[Address, Pool] = {}
        self._map: Map | None = None
        self._is_stale = True
        #: Made by the first call, as `Pool` has it.
        self._learner: Maker[Map] | None = None
        self._pid: int | None = None
        forks.watch(self)

    def node(self, key: str) -> Address | None:
        """Return the node that serves a key, as far as is known."""
        return None if self._map is None else self._map[slot(key)]

    def run(self, key: str, command: bytes, failing: type[Exception], otherwise: Change) -> Any:
        """Send a command to the node that serves a key, and return its reply. See `Pool.run`."""
        deadline = time.monotonic() + self._timeout
        served = self._map
        if served is None or self._is_stale or self._pid != os.getpid():
            served = self._learned_by(deadline)
        at = slot(key)
        node = served[at]
        if node is None:
            self._is_stale = True
            raise exceptions.ClusterDownError(f"no node serves slot {at}")
        asking: bytes | None = None
        for _ in range(REDIRECTIONS):
            try:
                return self._pool(node).run(command, failing, otherwise, deadline, asking)
            except exceptions.MovedError as moved:
                node, asking = _target(moved, node), None
                served[at] = node
            except exceptions.AskError as ask:
                node, asking = _target(ask, node), ASKING
            except (exceptions.ConnectionError, exceptions.TimeoutError) as error:
                self._is_stale = True
                self._ask_last(node)
                raise type(error)(f"{error} (node {node[0]}:{node[1]})") from error
            except exceptions.ClusterDownError:
                self._is_stale = True
                raise
        raise exceptions.ClusterError(f"slot {at} was redirected {REDIRECTIONS} times")

    def close(self) -> None:
        for pool in tuple(self._pools.values()):
            pool.close()

    def after_fork(self) -> None:
        """Begin anew. The pools of the nodes do so themselves."""
        self._learner, self._pid = None, None
        self._is_stale = True

    def _pool(self, node: Address) -> Pool:
        pool = self._pools.get(node)
        return self._pools.setdefault(node, self._make_pool(node)) if pool is None else pool

    def _learned_by(self, deadline: float) -> Map:
        """Return a new map if it is learned by a deadline, else the old one.

        One request waits for it, and leaves half of its time for its charge. Meanwhile, others use
        the old map.
        """
        if self._learner is None or self._pid != os.getpid():
            self._pid = os.getpid()
            self._learner = Maker(
                self._learn, self._keep, lambda: self._is_stale, self._connect_timeout
            )
        served = self._map
        if served is None:
            return self._learner.wait(lambda: self._map, deadline)
        if not self._learner.is_making:
            now = time.monotonic()
            try:
                return self._learner.wait(self._fresh, now + (deadline - now) / 2)
            except (exceptions.RedisError, Connecting):
                self._is_stale = False  # until a node says something else
        return self._map or served

    def _fresh(self) -> Map | None:
        return None if self._is_stale else self._map

    def _learn(self, deadline: float) -> Map:
        said = []
        for node in self._nodes:
            now = time.monotonic()
            try:
                # Half of the remaining time for each node, so that the others get some.
                return self._told_by(node, now + (deadline - now) / 2)
            except exceptions.RedisError as error:
                said.append(f"{node[0]}:{node[1]}: {error}")
                self._ask_last(node)
        raise exceptions.ConnectionError(f"no node tells of the cluster ({'; '.join(said)})")

    def _told_by(self, node: Address, deadline: float) -> Map:
        wire = self._dialer(node).dial(deadline)
        try:
            return _read(wire.call(LEARN, deadline), node)
        finally:
            wire.close()

    def _keep(self, served: Map) -> None:
        """Use a new map, and close connections to nodes that serve nothing any more."""
        self._map, self._is_stale = served, False
        serving = {node for node in served if node is not None}
        self._nodes = (*self._nodes, *sorted(serving.difference(self._nodes)))
        for node in [node for node in self._pools if node not in serving]:
            self._pools.pop(node).close()

    def _ask_last(self, node: Address) -> None:
        self._nodes = (*(n for n in self._nodes if n != node), node)


def slot(key: str) -> int:
    """Return the slot of a key: the part in braces decides."""
    return key_slot(key.encode())


def _read(answer: Any, asked: Address) -> Map:
    """Return the map that a node told.

    :raises InvalidResponse: if it told something else.
    """
    served: Map = [None] * SLOTS
    try:
        for first, last, primary, *_ in answer:
            # A node that does not know its own address leaves it out.
            node = address(primary[0] or asked[0].encode(), primary[1])
            if not 0 <= first <= last < SLOTS:
                raise ValueError
            served[first : last + 1] = [node] * (last + 1 - first)
    except (TypeError, ValueError, LookupError):
        raise exceptions.InvalidResponse(f"not a map of slots: {answer!r:.100}") from None
    return served


def _target(redirection: exceptions.AskError, asked: Address) -> Address:
    return address((redirection.host or asked[0]).encode(), redirection.port)
