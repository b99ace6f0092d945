"""Connections of redis-py that are up by a deadline, whatever steps connecting takes.

redis-py allows each step its timeout: every address of a host, TLS, AUTH and SELECT. A request
that waits for all of them has one timeout in all.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from types import BuiltinFunctionType
from typing import Any

import hiredis
from redis import Connection, ResponseError, SSLConnection, UnixDomainSocketConnection, exceptions

#: Host and port.
Address = tuple[str, int]

#: Seconds left when there are none: a timeout of 0 would mean something else to a socket.
SOON = 0.001


class Punctual:
    """Lets connecting take no longer than until a deadline. Goes before a class of redis-py."""

    _deadline: float | None = None
    _socket_connect_timeout: float | None
    socket_timeout: float | None
    _sock: Any
    host: str
    port: int
    connect: Callable[[], None]
    _parser: Any
    _replies: hiredis.Reader
    _waiting: select.poll | None
    #: The timeout that Python keeps, for each send and each receive.
    _patience: float | None

    #: Finds out where to connect to, by a deadline; None if that is known.
    primary: Callable[[float], Address] | None = None

    def connect_by(self, deadline: float) -> None:
        """Connect, or raise what redis-py raises, by a time on the monotonic clock."""
        self._deadline = deadline
        try:
            if self.primary is not None:
                self.host, self.port = self.primary(deadline)
            self.connect()
        finally:
            self._deadline = None
        self._replies = hiredis.Reader(
            protocolError=exceptions.InvalidResponse, replyError=self._parser.parse_error
        )
        self._waiting = self._poll()
        self._patience = self._limited_by_system()
        self._sock.settimeout(self._patience)

    def is_quiet(self) -> bool:
        """Return whether nothing came that was not asked for, such as the end of the connection.

        Found out before a charge is sent: afterwards nobody could say whether it was taken.
        """
        if self._waiting is not None:
            return not self._replies.has_data() and not self._waiting.poll(0)
        try:
            return not super().can_read(0)  # type: ignore[misc]  # redis-py's
        except (exceptions.ConnectionError, OSError):
            return False

    def _limited_by_system(self) -> float | None:
        """Let the system limit each wait, and return what is left to Python: None, if it can.

        Python would ask the system, before each send and each receive, whether it is time.
        """
        timeout = self.socket_timeout
        if self._waiting is None or timeout is None:
            return timeout
        seconds, part = divmod(timeout, 1)
        timeval = struct.pack("@ll", int(seconds), max(1, int(part * 1_000_000)))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._sock.setsockopt(socket.SOL_SOCKET, option, timeval)
        return None

    def _poll(self) -> select.poll | None:
        """Return what says whether there is anything to read; None where redis-py is to say it."""
        # One that stands in for the system's, such as gevent's, would let others run meanwhile.
        if not isinstance(getattr(select, "poll", None), BuiltinFunctionType):
            return None
        waiting = select.poll()
        waiting.register(self._sock, select.POLLIN)
        return waiting

    def call(self, command: bytes, deadline: float | None = None) -> Any:
        """Send a packed command and return its reply.

        :param deadline: until when, on the monotonic clock; by default each of the two may take
            the connection's timeout.

        What ``send_packed_command`` and ``read_response`` do, without what they do for the other
        things that can come over a connection: half of the client's part of a round trip.
        """
        if deadline is not None:
            return self._call_by(command, deadline)
        try:
            self._sock.sendall(command)
            reply: Any = False
            while reply is False:
                received = self._sock.recv(65_536)
                if not received:
                    raise exceptions.ConnectionError("the server closed the connection")
                self._replies.feed(received)
                reply = self._replies.gets()
        except (TimeoutError, BlockingIOError) as error:
            raise exceptions.TimeoutError("no reply in time") from error
        except OSError as error:
            raise exceptions.ConnectionError(f"the connection failed: {error}") from error
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _call_by(self, command: bytes, deadline: float) -> Any:
        self._sock.settimeout(max(SOON, deadline - time.monotonic()))
        try:
            return self.call(command)
        finally:
            if self._sock is not None:
                self._sock.settimeout(self._patience)

    # redis-py reads and calls these while it connects, and at no other time.

    @property
    def socket_connect_timeout(self) -> float | None:
        return self._left(self._socket_connect_timeout)

    @socket_connect_timeout.setter
    def socket_connect_timeout(self, value: float | None) -> None:
        self._socket_connect_timeout = value

    def _connect(self) -> Any:
        sock = super()._connect()  # type: ignore[misc]  # redis-py's
        sock.settimeout(self._left(self.socket_timeout))
        return sock

    def send_command(self, *command: Any, **options: Any) -> None:
        if self._deadline is not None:
            self._sock.settimeout(self._left(self.socket_timeout))
        super().send_command(*command, **options)  # type: ignore[misc]  # redis-py's

    def _left(self, timeout: float | None) -> float | None:
        if self._deadline is None:
            return timeout
        left = max(SOON, self._deadline - time.monotonic())
        return left if timeout is None else min(timeout, left)


class TcpConnection(Punctual, Connection):
    """Over TCP."""


class UnixConnection(Punctual, UnixDomainSocketConnection):
    """Over a unix socket."""


class TlsConnection(Punctual, SSLConnection):
    """Over TLS, with one context for all connections: to load certificates takes a while."""

    def _poll(self) -> None:
        return None  # what comes over TLS need not be for us

    def __init__(self, *, trust: Trust | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self._trust = trust or Trust()

    def _connect(self) -> Any:
        if self.ssl_validate_ocsp or self.ssl_validate_ocsp_stapled:
            return super()._connect()  # more than a context; redis-py knows how
        sock = Connection._connect(self)  # type: ignore[no-untyped-call]
        try:
            context = self._trust.context(self)
            sock.settimeout(self._left(self.socket_timeout))
            return context.wrap_socket(sock, server_hostname=self.host)
        except BaseException:
            sock.close()
            raise


def heard(connection: Any) -> None:
    """Finish connecting over TLS, with an answer read.

    A server sends session tickets behind its handshake. Unread, they look like an answer that
    nobody asked for, and the connection like one that cannot be used again.
    """
    connection.on_connect()
    connection.send_command("PING", check_health=False)
    # That it may not be sent is an answer as well.
    with suppress(ResponseError):
        connection.read_response()


class Trust:
    """The TLS context of a process: of this one, since one made before gevent patches blocks."""

    def __init__(self) -> None:
        self._made: tuple[int, ssl.SSLContext] | None = None

    def context(self, of: TlsConnection) -> ssl.SSLContext:
        """Return the context with the options of a connection.

        :raises OSError: if a certificate cannot be loaded.
        """
        made = self._made
        if made is None or made[0] != os.getpid():
            self._made = made = (os.getpid(), _context(of))
        return made[1]


def _context(of: TlsConnection) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = of.check_hostname
    context.verify_mode = of.cert_reqs
    for flag in getattr(of, "ssl_include_verify_flags", None) or ():
        context.verify_flags |= flag
    for flag in getattr(of, "ssl_exclude_verify_flags", None) or ():
        context.verify_flags &= ~flag
    if of.certfile or of.keyfile:
        context.load_cert_chain(of.certfile, of.keyfile, of.certificate_password)
    if of.ca_certs or of.ca_path or of.ca_data:
        context.load_verify_locations(of.ca_certs, of.ca_path, of.ca_data)
    if of.ssl_min_version is not None:
        context.minimum_version = of.ssl_min_version
    if of.ssl_ciphers:
        context.set_ciphers(of.ssl_ciphers)
    return context


def leading(kind: type[Punctual]) -> type[Punctual]:
    """Return a class of connections to wherever its argument `primary` says, each time anew."""

    class Leading(kind):  # type: ignore[misc,valid-type]
        def __init__(self, *, primary: Callable[[float], Address], **settings: Any) -> None:
            super().__init__(**settings)
            self.primary = primary

        def connect(self) -> None:
            if self._deadline is None and self._sock is None:  # asked by redis-py's own pool
                patience = self._socket_connect_timeout or 1
                self.host, self.port = self.primary(time.monotonic() + patience)
            super().connect()

    return Leading
