"""Dialer: connects to a server. TLS, AUTH and SELECT included, it keeps to one deadline."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import redis
from redis import exceptions
from redis.credentials import UsernamePasswordCredentialProvider

from .library import Options, checks_revocation, over_tls, tls_context
from .wire import Wire, left, packed

#: Host and port.
Address = tuple[str, int]

#: The arguments of a socket, and the address that it connects to.
_Target = tuple[int, int, int, Any]


class Dialer:
    """Connects to one server, from one process.

    :param kind: a class of redis-py's connections.
    :param settings: its arguments: where the server is, and how to connect there.
    :param seconds: that connecting may take.
    :param primary: finds out where to connect to, by a deadline; None if the settings say it.
    """

    def __init__(
        self,
        kind: type[Any],
        settings: Mapping[str, Any],
        seconds: float,
        primary: Callable[[float], Address] | None = None,
    ) -> None:
        self._kind, self._settings = kind, settings
        self._seconds = seconds
        self._primary = primary
        #: Kept, since loading the system's certificates takes some 50 ms of CPU time. Made when it
        #: is first needed, since gevent cannot patch one that exists already.
        self._context: ssl.SSLContext | None = None

    def dial(self, deadline: float | None = None) -> Wire:
        """Return a connection that is up.

        :param deadline: on the monotonic clock; by default the dialer's own seconds from now.
        :raises redis.RedisError: whatever goes wrong.
        """
        began = time.monotonic()
        if deadline is None:
            deadline = began + self._seconds
        settings = dict(self._settings)
        if self._primary is not None:
            settings["host"], settings["port"] = self._primary(deadline)
        options = self._kind(**settings)
        try:
            wire = self._dialled(options, deadline)
        except exceptions.RedisError:
            raise
        except TimeoutError as error:
            raise exceptions.TimeoutError(
                f"connecting to {_name(options)} took too long"
            ) from error
        except Exception as error:
            raise exceptions.ConnectionError(
                f"connecting to {_name(options)} failed: {error or type(error).__name__}"
            ) from error
        wire.took = time.monotonic() - began
        return wire

    def _dialled(self, options: Options, deadline: float) -> Wire:
        targets = _targets(options)
        if time.monotonic() > deadline:
            # Nothing can interrupt a resolver. Requests have been told by now that this failed. The
            # late answer serves the next ones.
            deadline = time.monotonic() + self._seconds
        sock = _connected(targets, options, deadline)
        try:
            sock = self._secured(sock, options, deadline)
            wire = Wire(sock)
            _introduce(wire, options, deadline)
        except BaseException:
            sock.close()
            raise
        return wire

    def _secured(self, sock: socket.socket, options: Options, deadline: float) -> socket.socket:
        """Return the socket, over TLS if the options ask for it."""
        if not isinstance(options, redis.SSLConnection):
            return sock
        if checks_revocation(options):
            sock.settimeout(left(deadline))
            return over_tls(options, sock)
        if self._context is None:
            self._context = tls_context(options)
        sock.settimeout(left(deadline))
        return self._context.wrap_socket(sock, server_hostname=options.host)


def _targets(options: Options) -> list[_Target]:
    """Return what to connect to, in turn: the addresses of a host, or a unix socket."""
    if isinstance(options, redis.UnixDomainSocketConnection):
        return [(socket.AF_UNIX, socket.SOCK_STREAM, 0, options.path)]
    found = socket.getaddrinfo(options.host, options.port, options.socket_type, socket.SOCK_STREAM)
    return [(family, kind, protocol, address) for family, kind, protocol, _, address in found]


def _connected(targets: list[_Target], options: Options, deadline: float) -> socket.socket:
    """Return a socket that is connected to the first target that takes it."""
    failure: OSError = OSError("the name has no address")
    for i, (family, kind, protocol, address) in enumerate(targets):
        sock = socket.socket(family, kind, protocol)
        try:
            if family != socket.AF_UNIX:
                _set_up(sock, options)
            # An equal share of the time for each, so that a silent one leaves some to the others.
            sock.settimeout(left(deadline) / (len(targets) - i))
            sock.connect(address)
            return sock
        except OSError as error:
            sock.close()
            failure = error
    raise failure


def _set_up(sock: socket.socket, options: Options) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if options.socket_keepalive:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (options.socket_keepalive_options or {}).items():
            sock.setsockopt(socket.IPPROTO_TCP, name, value)


def _introduce(wire: Wire, options: Options, deadline: float) -> None:
    """Authenticate and select a database, as far as the options ask for it."""
    commands: list[tuple[Any, ...]] = []
    credentials = options.credential_provider
    if credentials is None and (options.username or options.password):
        credentials = UsernamePasswordCredentialProvider(options.username, options.password)
    if credentials is not None:
        commands.append(("AUTH", *credentials.get_credentials()))
    if options.client_name:
        commands.append(("CLIENT", "SETNAME", options.client_name))
    if options.db:
        commands.append(("SELECT", options.db))
    for command in commands:
        if wire.call(packed(*command), deadline) != b"OK":
            raise exceptions.ConnectionError(f"the server did not answer {command[0]} with OK")


def _name(options: Options) -> str:
    if isinstance(options, redis.UnixDomainSocketConnection):
        return str(options.path)
    return f"{options.host}:{options.port}"


def address(host: Any, port: Any) -> Address:
    """Return an address that a server named.

    :raises InvalidResponse: if it is not one.
    """
    with suppress(AttributeError, TypeError, ValueError):
        found = host.decode(), int(port)
        if found[0] and 0 < found[1] < 65_536:
            return found
    raise exceptions.InvalidResponse(f"not an address: {host!r:.100}, {port!r:.20}")
