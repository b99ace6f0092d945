"""Pool: the connections to one server. Their number is bounded, and so is the wait for one."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Any

from redis import exceptions

from ... import forks
from ...errors import Connecting
from .dialing import Dialer
from .maker import Maker
from .wire import Wire

#: Turns one packed command into another.
Change = Callable[[bytes], bytes]


class Pool:
    """Connections to one server. Thread-safe, and safe to make before a fork.

    :param dialer: makes a dialer for this process.
    :param size: how many connections there may be.
    :param timeout: seconds that a call may take in all: to wait for a connection, and to get the
        whole reply.
    :param connect_timeout: seconds that connecting may take, in the background.
    """

    def __init__(
        self,
        dialer: Callable[[], Dialer],
        size: int,
        timeout: float,
        connect_timeout: float,
    ) -> None:
        self._dialer = dialer
        self._size = size
        self._timeout, self._connect_timeout = timeout, connect_timeout
        #: Made by the first call: gevent may replace locks and sockets until then.
        self._connections: _Connections | None = None
        self._beginning = Lock()
        forks.watch(self)

    def run(
        self,
        command: bytes,
        failing: type[Exception],
        otherwise: Change,
        deadline: float | None = None,
        before: bytes | None = None,
    ) -> Any:
        """Send a packed command and return its reply.

        :param failing: an error reply that says that nothing was done; then what `otherwise`
            makes of the command is sent.
        :param deadline: when the call must end, on the monotonic clock; by default after the
            pool's timeout.
        :param before: sent before the command, on the same connection.
        :raises Connecting: if there is no connection yet, and nothing has failed.
        :raises redis.RedisError: whatever goes wrong.
        """
        if deadline is None:
            deadline = time.monotonic() + self._timeout
        connections = self._connections
        if connections is None or connections.pid != os.getpid():
            connections = self._begin()
        wire = connections.take(deadline)
        try:
            try:
                if before is not None:
                    wire.call(before, deadline)
                reply = wire.call(command, deadline)
            except failing:
                if before is not None:
                    wire.call(before, deadline)
                reply = wire.call(otherwise(command), deadline)
        except exceptions.ReadOnlyError:
            connections.lose(wire)  # a primary that became a replica: look for the new one
            raise
        except exceptions.ResponseError:
            connections.give_back(wire)
            raise
        except exceptions.RedisError:
            connections.lose(wire)
            raise
        except BaseException:
            connections.drop(wire)
            raise
        connections.give_back(wire)
        return reply

    def close(self) -> None:
        """Close the connections; those in use are closed when they are given back."""
        connections, self._connections = self._connections, None
        if connections is not None:
            connections.close()

    def after_fork(self) -> None:
        """Close this process's ends of the parent's connections, and begin anew."""
        connections, self._connections = self._connections, None
        self._beginning = Lock()
        if connections is not None:
            for wire in tuple(connections.wires):
                wire.close()

    def _begin(self) -> _Connections:
        if self._connections is not None and self._connections.pid != os.getpid():
            self.after_fork()  # by a server that forks without telling Python, such as uWSGI
        with self._beginning:
            if self._connections is None:
                self._connections = _Connections(self._dialer(), self._size, self._connect_timeout)
            return self._connections


class _Connections:
    """The connections of one process, from the first call to `close` or a fork."""

    def __init__(self, dialer: Dialer, size: int, connect_timeout: float) -> None:
        self.pid = os.getpid()
        #: All of them. Those in use are not idle.
        self.wires: set[Wire] = set()
        self._idle: deque[Wire] = deque()
        self._closed = False
        self._size = size
        self._maker: Maker[Wire] = Maker(
            dialer.dial, self._keep, self._is_another_wanted, connect_timeout
        )

    def take(self, deadline: float) -> Wire:
        """Return a connection that is up, the one used last or a new one.

        :raises Connecting: and what `Maker.wait` raises.
        """
        while True:
            try:
                wire = self._idle.pop()
            except IndexError:
                return self._wait(deadline)
            try:
                is_quiet = wire.is_quiet()
            except BaseException:
                self.drop(wire)
                raise
            if is_quiet:
                return wire
            self._discard(wire)

    def give_back(self, wire: Wire) -> None:
        """Let others use a connection."""
        self._idle.append(wire)
        if self._closed:
            self._close_idle()
        elif self._maker.waiting:
            with self._maker.changed:
                self._maker.changed.notify()

    def lose(self, wire: Wire) -> None:
        """Close a lost connection, and all idle ones: most likely they are lost too."""
        self._discard(wire)
        self._close_idle()
        with self._maker.changed:
            self._maker.failed(
                exceptions.ConnectionError("a connection was lost while this call waited for it")
            )

    def drop(self, wire: Wire) -> None:
        """Close a connection whose call was cut short. Its answer would be taken for another's."""
        self._discard(wire)
        with self._maker.changed:
            self._maker.changed.notify()  # a request that waits may get a new one

    def close(self) -> None:
        self._closed = True
        self._close_idle()

    def _wait(self, deadline: float) -> Wire:
        wire = self._maker.wait(self._one_idle, deadline, alone=not self.wires)
        took, wire.took = wire.took, 0.0
        if deadline - time.monotonic() < took / 2:
            # Connecting takes several round trips, and a charge takes one. There is too little time
            # left to wait for the answer, so leave the connection to the next request.
            self.give_back(wire)
            raise Connecting(f"connecting took {took:.2f} s; the next request has the connection")
        return wire

    def _one_idle(self) -> Wire | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _keep(self, wire: Wire) -> None:
        self.wires.add(wire)
        self._idle.append(wire)
        if self._closed:
            self._close_idle()

    def _is_another_wanted(self) -> bool:
        return (
            not self._closed
            and self._maker.waiting > len(self._idle)
            and len(self.wires) < self._size
        )

    def _close_idle(self) -> None:
        while (wire := self._one_idle()) is not None:
            self._discard(wire)

    def _discard(self, wire: Wire) -> None:
        self.wires.discard(wire)
        wire.close()
