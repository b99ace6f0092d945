"""Pool: redis-py's connections, handed out with a bound on their number and on the wait.

redis-py's own pools cost half a round trip on loopback with each command, mostly for metrics of
their own. The connections (TCP, TLS, unix sockets, Sentinel, authentication) are redis-py's.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from threading import BoundedSemaphore
from typing import Any

from redis import exceptions

#: A connection of redis-py, of whichever kind.
Connection = Any


class Pool:
    """Connections of one process. Thread-safe, and safe to make before a fork.

    :param make: makes a connection object, without connecting it.
    :param size: how many connections there may be.
    :param timeout: seconds to wait for a free one; what was waited is taken off its reply's time.
    """

    def __init__(self, make: Callable[[], Connection], size: int, timeout: float) -> None:
        self._make = make
        self._size = size
        self._timeout = timeout
        self._begin()

    def _begin(self) -> None:
        self._idle: deque[Connection] = deque()
        self._free = BoundedSemaphore(self._size)
        self._pid = os.getpid()

    def run(self, command: tuple[Any, ...], failing: type[Exception], otherwise: Any) -> Any:
        """Send a command and return its reply.

        :param failing: an error reply that says that nothing was done; then `otherwise` is sent.
        """
        if self._pid != os.getpid():
            self._begin()  # after a fork: the sockets are the parent's, so leave them alone
        free, deadline = self._free, None
        if not free.acquire(blocking=False):
            deadline = time.monotonic() + self._timeout
            if not free.acquire(timeout=self._timeout):
                raise exceptions.ConnectionError(
                    f"all {self._size} connections are in use (BUCKET_MAX_CONNECTIONS)"
                )
        try:
            connection = self._connected()
            try:
                try:
                    reply = _exchange(connection, command, deadline)
                except failing:
                    reply = _exchange(connection, otherwise, deadline)
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
            free.release()

    def close(self) -> None:
        """Disconnect what is idle."""
        while True:
            try:
                self._idle.pop().disconnect()
            except IndexError:
                return

    def _connected(self) -> Connection:
        """Return a connection that is up, the one used last if possible."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._make()
        else:
            if not _closed(connection):
                return connection
        connection.connect()
        return connection

    def _drop(self, connection: Connection) -> None:
        """Disconnect one that is lost, and those that idle: most likely they are lost as well."""
        connection.disconnect()
        self.close()


def _closed(connection: Connection) -> bool:
    """Return whether the server closed an idle connection; if so it is disconnected.

    Found out before a charge is sent: afterwards nobody could say whether it was taken.
    """
    try:
        if not connection.can_read(timeout=0):
            return False
    except (exceptions.ConnectionError, OSError):
        pass
    connection.disconnect()
    return True


def _exchange(connection: Connection, command: tuple[Any, ...], deadline: float | None) -> Any:
    connection.send_packed_command(connection.pack_command(*command), check_health=False)
    if deadline is not None and not connection.can_read(max(0, deadline - time.monotonic())):
        raise exceptions.TimeoutError(
            "no reply in what was left of the timeout, after waiting for a connection"
        )
    return connection.read_response()
