"""The parts of redis-py that it does not promise to keep, and why each is used.

Charges go over connections of our own (``dialing.py``, ``wire.py``): redis-py's take half a round
trip longer for each command, and count their timeouts for each step and each part of a reply. Its
URLs, options, credentials, exceptions and clients are used as they are. Beyond its public API:

* ``redis.connection.parse_url`` reads a URL exactly as ``redis.Redis.from_url`` does.
* The attributes of a connection object (`ATTRIBUTES`) hold the options after redis-py's own
  checks and defaults. Such an object is made to be read, and never connects.
* ``SSLConnection._wrap_socket_with_ssl`` turns the options of TLS into an ``SSLContext``. Around an
  unconnected socket it loads the certificates, without a handshake.
* ``DefaultParser.parse_error`` makes the exception that belongs to an error reply. Before
  redis-py 6 only ``redis.cluster.ClusterParser`` knows redirections.
* ``Retry._retries``, ``connection_pool.connection_class`` and ``connection_kwargs``,
  ``RedisCluster.get_connection_kwargs`` and ``cluster_error_retry_attempts`` (before redis-py 6)
  say how a client that was handed in waits and retries.

``tests/outage/test_library.py`` fails for each part that a new version lacks.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any

import redis
import redis.cluster
from redis import exceptions
from redis.connection import AbstractConnection, DefaultParser, parse_url

#: A connection object of redis-py that is only read.
Options = Any

#: The attributes that are read from one.
ATTRIBUTES = {
    redis.Connection: ("host", "port", "socket_type", "socket_keepalive"),
    redis.UnixDomainSocketConnection: ("path",),
    redis.SSLConnection: ("ssl_validate_ocsp", "ssl_validate_ocsp_stapled"),
    AbstractConnection: (
        *("username", "password", "credential_provider", "client_name", "db", "retry"),
        *("socket_timeout", "socket_connect_timeout"),
    ),
}

_PARSER = getattr(redis.cluster, "ClusterParser", DefaultParser)


def url_settings(url: str) -> dict[str, Any]:
    """Return the arguments of a connection that a URL spells.

    :raises ValueError: if the URL is malformed. The message may quote a password.
    """
    settings: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]  # redis-py's
    return settings


def tls_context(options: Options) -> ssl.SSLContext:
    """Return the TLS context that the options ask for. Takes some 50 ms of CPU time.

    :raises OSError: if a certificate cannot be loaded.
    """
    with socket.socket() as unconnected, options._wrap_socket_with_ssl(unconnected) as wrapped:
        context: ssl.SSLContext = wrapped.context
        return context


def over_tls(options: Options, sock: socket.socket) -> socket.socket:
    """Do the TLS handshake as redis-py does, with its checks of revocation (OCSP)."""
    wrapped: socket.socket = options._wrap_socket_with_ssl(sock)
    return wrapped


def checks_revocation(options: Options) -> bool:
    """Return whether the options ask for OCSP, which needs connections of its own."""
    return bool(options.ssl_validate_ocsp or options.ssl_validate_ocsp_stapled)


def error_of(reply: str) -> Exception:
    """Return the exception for an error reply, whatever it says."""
    try:
        error: Exception = _PARSER.parse_error(reply)
    except (ValueError, LookupError):
        # Such as MOVED without an address.
        error = exceptions.InvalidResponse(f"an error reply that cannot be read: {reply!r:.100}")
    return error


def options_of(client: Any) -> Options:
    """Return the options with which a client makes its connections."""
    if isinstance(client, redis.RedisCluster):
        settings: dict[str, Any] = client.get_connection_kwargs()  # type: ignore[no-untyped-call]  # redis-py's
        known = ("socket_timeout", "socket_connect_timeout")
        return redis.Connection(**{k: settings[k] for k in known if k in settings})  # type: ignore[no-untyped-call]  # redis-py's
    pool = client.connection_pool
    return pool.connection_class(**pool.connection_kwargs)


def retries_of(client: Any) -> int:
    """Return how often a client sends a command again; negative if without end."""
    if not isinstance(client, redis.RedisCluster):
        return int(options_of(client).retry._retries)
    retry = getattr(client, "retry", None)
    own: int = getattr(client, "cluster_error_retry_attempts", 0)
    return own if retry is None else int(retry._retries) or own
