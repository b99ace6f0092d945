"""Wire: one connection that is up. It sends a command and returns the reply, by a deadline."""

from __future__ import annotations

import re
import select
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

import hiredis
from redis import exceptions

from .library import error_of

#: Most bytes of one reply. The script's have some hundred, and CLUSTER SLOTS of a large cluster
#: has a million.
MOST = 1 << 22

#: The head of an array, map or set of 100,000 elements or more. Memory would be reserved for all
#: of them before the first one comes, and no server has that much to say to us.
_TOO_MANY = re.compile(rb"[*%~>|]\d{6}")

#: Such a head may begin in the last bytes of one part of a reply, and end in the next part.
_HEAD = 8


def packed(*words: bytes | str | int) -> bytes:
    """Return a command as it is sent.

    hiredis gets no numbers. It would call Python to spell one, where a signal's handler may run,
    and if that raises, hiredis crashes the process.
    """
    texts: Any = tuple([str(word) if isinstance(word, int) else word for word in words])
    command: bytes = hiredis.pack_command(texts)
    return command


#: Raised when talking to a server fails: by the system, for a senseless reply such as a list as a
#: map's key, for lack of memory, or by a patched socket. Any other exception comes from a signal
#: handler of the application, and surfaces.
BROKEN = (
    *(OSError, ValueError, TypeError, LookupError, AttributeError),
    *(RuntimeError, SystemError, MemoryError),
)

#: Raised by a socket that cannot go on yet.
_NOT_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Wire:
    """A connection to a server. Used by one thread at a time.

    The socket itself never waits. Before each wait the time left is computed from the deadline:
    neither a signal that interrupts it nor a reply that drips can extend it.

    :param sock: connected, and over TLS if need be.
    :param took: seconds that connecting took.
    """

    __slots__ = ("_readable", "_replies", "_sock", "took")

    def __init__(self, sock: socket.socket, took: float = 0.0) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._readable = _waits_for(sock, writable=False)
        self._replies = hiredis.Reader(
            protocolError=exceptions.InvalidResponse, replyError=error_of
        )
        self.took = took

    def is_quiet(self) -> bool:
        """Return whether nothing came unasked: an answer too many, or the connection's end.

        Found out before a charge is sent: afterwards nobody could say whether it was taken.
        """
        try:
            if self._readable(0):
                # Over TLS, what came may be a session ticket, which is no answer.
                self._sock.recv(1)
                return False
        except _NOT_YET:
            pass
        except BROKEN:
            return False
        return not self._replies.has_data()

    def call(self, command: bytes, deadline: float) -> Any:
        """Send a packed command and return its reply.

        :param deadline: when the whole reply must be there, on the monotonic clock.
        :raises redis.RedisError: whatever goes wrong.
        """
        try:
            self._send(command, deadline)
            reply = self._read(deadline)
        except exceptions.RedisError:
            raise
        except TimeoutError as error:
            raise exceptions.TimeoutError("no reply in time") from error
        except BROKEN as error:
            raise exceptions.ConnectionError(
                f"the connection failed: {type(error).__name__}: {error}"
            ) from error
        if isinstance(reply, Exception):
            raise reply
        return reply

    def close(self) -> None:
        """Close this process's end. After a fork, the other process's stays open."""
        self._sock.close()

    def _send(self, command: bytes, deadline: float) -> None:
        while command:
            try:
                command = command[self._sock.send(command) :]
            except ssl.SSLWantReadError:
                self._readable(left(deadline) * 1000)
            except _NOT_YET:
                _waits_for(self._sock, writable=True)(left(deadline) * 1000)

    def _read(self, deadline: float) -> Any:
        size, before = 0, b""
        while True:
            self._readable(left(deadline) * 1000)
            try:
                received = self._sock.recv(65_536)
            except _NOT_YET:
                continue
            if not received:
                raise exceptions.ConnectionError("the server closed the connection")
            size += len(received)
            if size > MOST or _TOO_MANY.search(before + received if before else received):
                raise exceptions.InvalidResponse("the reply is longer than any that was asked for")
            before = received[-_HEAD:]
            self._replies.feed(received)
            reply = self._replies.gets()
            if reply is not False:
                return reply


def _waits_for(sock: socket.socket, *, writable: bool) -> Callable[[float], object]:
    """Return a function that waits, for some milliseconds at most, until a socket can go on.

    It returns whether it can, and may return early. gevent's poll, in the place of the system's,
    lets others run meanwhile; eventlet and Windows have none.
    """
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(sock, select.POLLOUT if writable else select.POLLIN)
        return poll.poll
    reading, writing = ([], [sock]) if writable else ([sock], [])
    return lambda milliseconds: any(select.select(reading, writing, [], milliseconds / 1000))


def left(deadline: float) -> float:
    """Return the seconds until a deadline.

    :raises TimeoutError: if there are none.
    """
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds
