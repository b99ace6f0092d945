"""Pool: redis-py's connections, handed out with a bound on their number and on the wait.

redis-py's own pools cost half a round trip on loopback with each command, mostly for metrics of
their own. The connections (TCP, TLS, unix sockets, authentication) are redis-py's.
"""

from __future__ import annotations

import os
import queue
import time
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any

from hiredis import pack_command
from redis import exceptions

if TYPE_CHECKING:
    from queue import SimpleQueue

#: A connection of redis-py, of whichever kind, made punctual.
Connection = Any

#: Makes of one packed command another.
Change = Callable[[bytes], bytes]


def packed(*words: Any) -> bytes:
    """Return a command as it is sent."""
    command: bytes = pack_command(words)
    return command


class Pool:
    """Connections of one process. Thread-safe, and safe to make before a fork.

    :param make: makes a connection object, without connecting it.
    :param size: how many connections there may be.
    :param timeout: seconds that a call may take in all: to wait for a free connection, to
        connect, and to get the reply.
    """

    def __init__(self, make: Callable[[], Connection], size: int, timeout: float) -> None:
        self._make = make
        self._size = size
        self._timeout = timeout
        self._beginning = Lock()
        #: The process that the rest is of. It begins with the first call: what gevent puts in the
        #: place of queues and locks meanwhile, it is to be made of.
        self._pid: int | None = None
        self._idle: deque[Connection] = deque()

    def _begin(self) -> None:
        self._idle = deque()
        # A semaphore that costs next to nothing: one permit for each connection there may be.
        # Made here and not imported by name, since gevent puts its own in this one's place.
        self._permits: SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(self._size):
            self._permits.put(None)
        #: Counts the connections lost, so that those who wait for one can give up at once.
        self._lost = 0
        self._pid = os.getpid()

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
        :param deadline: if the call must end before its timeout, when.
        :param before: sent before the command, on the same connection.
        """
        if self._pid != os.getpid():
            self._begin_again()
        ends = deadline or time.monotonic() + self._timeout
        permits = self._permits
        try:
            permits.get_nowait()
        except queue.Empty:
            self._wait(permits, ends)
            deadline = ends
        try:
            connection = self._idle_one()
            if connection is None:
                connection = self._connected(ends)
                deadline = ends
            # Without a deadline the timeout begins now, and the socket's own will do.
            try:
                try:
                    if before is not None:
                        connection.call(before, ends)
                    reply = connection.call(command, deadline)
                except failing:
                    if before is not None:
                        connection.call(before, ends)
                    reply = connection.call(otherwise(command), ends)
            except exceptions.ReadOnlyError:
                self._drop(connection)  # a primary that became a replica: look for the new one
                raise
            except exceptions.ResponseError:
                self._idle.append(connection)
                raise
            except BaseException:
                self._drop(connection)
                raise
            self._idle.append(connection)
            return reply
        finally:
            permits.put(None)

    def close(self) -> None:
        """Disconnect what is idle."""
        while True:
            try:
                self._idle.pop().disconnect()
            except IndexError:
                return

    def _begin_again(self) -> None:
        """Begin, or begin anew after a fork: the sockets are the parent's, so leave them alone."""
        with self._beginning:
            if self._pid != os.getpid():
                self._begin()

    def _wait(self, permits: SimpleQueue[None], ends: float) -> None:
        """Wait for one of the connections, unless they turn out to be lost."""
        lost = self._lost
        try:
            permits.get(timeout=max(0, ends - time.monotonic()))
        except queue.Empty:
            raise exceptions.ConnectionError(
                f"all {self._size} connections are in use (BUCKET_MAX_CONNECTIONS)"
            ) from None
        if lost != self._lost:
            permits.put(None)
            raise exceptions.ConnectionError("a connection was lost while this call waited for it")

    def _idle_one(self) -> Connection | None:
        """Return a connection that is up, the one used last; None if there is none."""
        try:
            connection = self._idle.pop()
        except IndexError:
            return None
        if connection.is_quiet():
            return connection
        connection.disconnect()
        return None

    def _connected(self, ends: float) -> Connection:
        """Return a new connection, once it is up."""
        began = time.monotonic()
        connection = self._make()
        try:
            connection.connect_by(ends)
        except BaseException:
            self._lost += 1
            raise
        now = time.monotonic()
        if ends - now < (now - began) / 2:
            # Connecting is some round trips, and a charge is one: rather than send it and not
            # wait for the answer, keep the connection for the next one.
            self._idle.append(connection)
            raise exceptions.TimeoutError(
                f"connecting took {now - began:.3f} s of the {self._timeout} s for each request"
            )
        return connection

    def _drop(self, connection: Connection) -> None:
        """Disconnect one that is lost, and those that idle: most likely they are lost as well."""
        self._lost += 1
        connection.disconnect()
        self.close()
