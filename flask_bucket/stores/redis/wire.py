"""Wire: one connection that is up. It sends a command and returns the reply, by a deadline."""

from __future__ import annotations

import re
import socket
import ssl
import time
from typing import Any

import hiredis
from redis import exceptions

from .library import error_of

#: Bytes of a reply that are read at most. The script says some hundred; CLUSTER SLOTS of a large
#: cluster says a million.
MOST = 1 << 22

#: The head of an array, map or set of 100,000 elements or more. Memory would be reserved for all
#: of them before the first one comes, and no server has that much to say to us.
_TOO_MANY = re.compile(rb"[*%~>|]\d{6}")

#: Bytes of one part of a reply in which the next part's beginning may be needed to see such a head.
_HEAD = 8


def packed(*words: Any) -> bytes:
    """Return a command as it is sent."""
    command: bytes = hiredis.pack_command(words)
    return command


class Wire:
    """A connection to a server. Used by one thread at a time.

    :param sock: connected, and over TLS if need be.
    :param took: seconds that connecting took.
    """

    __slots__ = ("_replies", "_sock", "took")

    def __init__(self, sock: socket.socket, took: float = 0.0) -> None:
        self._sock = sock
        self._replies = hiredis.Reader(
            protocolError=exceptions.InvalidResponse, replyError=error_of
        )
        self.took = took

    def is_quiet(self) -> bool:
        """Return whether nothing came unasked: an answer too many, or the connection's end.

        Found out before a charge is sent: afterwards nobody could say whether it was taken.
        """
        try:
            self._sock.settimeout(0)
            self._sock.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return not self._replies.has_data()
        except Exception:
            return False
        return False

    def call(self, command: bytes, deadline: float) -> Any:
        """Send a packed command and return its reply.

        :param deadline: when the whole reply must be there, on the monotonic clock.
        :raises redis.RedisError: whatever goes wrong.
        """
        try:
            self._sock.settimeout(left(deadline))
            self._sock.sendall(command)
            reply = self._read(deadline)
        except exceptions.RedisError:
            raise
        except TimeoutError as error:
            raise exceptions.TimeoutError("no reply in time") from error
        except Exception as error:
            # Also what hiredis cannot put together, and what a patched socket raises.
            raise exceptions.ConnectionError(
                f"the connection failed: {type(error).__name__}: {error}"
            ) from error
        if isinstance(reply, Exception):
            raise reply
        return reply

    def close(self) -> None:
        """Close this process's end. After a fork, the other process's stays open."""
        self._sock.close()

    def _read(self, deadline: float) -> Any:
        size, before = 0, b""
        while True:
            # Set anew for each part, or a reply that drips would have the whole time for each.
            self._sock.settimeout(left(deadline))
            received = self._sock.recv(65_536)
            if not received:
                raise exceptions.ConnectionError("the server closed the connection")
            size += len(received)
            if size > MOST or _TOO_MANY.search(before + received):
                raise exceptions.InvalidResponse("the reply is longer than any that was asked for")
            before = received[-_HEAD:]
            self._replies.feed(received)
            reply = self._replies.gets()
            if reply is not False:
                return reply


def left(deadline: float) -> float:
    """Return the seconds until a deadline.

    :raises TimeoutError: if there are none.
    """
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds
