"""From a URL to connections of redis-py: with timeouts, without retries, without ceremony."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry

from ...errors import ConfigError
from .connections import (
    Address,
    TcpConnection,
    TlsConnection,
    Trust,
    UnixConnection,
    heard,
)

EXPECTED = (
    "redis://host:6379/0, rediss://host:6380/0 (TLS), unix:///path/to.sock, "
    "redis+sentinel://host:26379,host:26379/service/0, redis+cluster://host:6379,host:6379 "
    "(both also with rediss+)"
)

#: The scheme, the credentials, several hosts, and the path behind them.
_SEVERAL = re.compile(r"(rediss?)\+(sentinel|cluster)://(.*@)?([^/?]*)(?:/([^?]*))?(\?.*)?")

_PORTS = {"sentinel": 26379, "cluster": 6379}


@dataclass(frozen=True, slots=True)
class Place:
    """Where Redis is, and how to connect there."""

    #: "single", "sentinel" or "cluster".
    topology: str
    #: A class of punctual connections and its arguments.
    kind: type[Any]
    settings: Mapping[str, Any]
    #: The sentinels, or the nodes of the cluster that are known.
    nodes: tuple[Address, ...] = ()
    #: What the sentinels call the primary and its replicas.
    service: str = ""
    #: How to connect to sentinels.
    sentinel_settings: Mapping[str, Any] | None = None


def place(url: str, timeout: float, options: Mapping[str, Any]) -> Place:
    """Read a URL.

    :raises ConfigError: if the URL or an option is not one.
    """
    try:
        several = _SEVERAL.fullmatch(url)
        if several is None:
            kind, settings = _settings(url, timeout, options)
            return Place("single", kind, settings)
        return _several(several, timeout, options)
    except (ValueError, TypeError, AttributeError, OSError, redis.RedisError) as error:
        raise ConfigError(
            f"{without_password(url)!r} with the options {sorted(options)} is not a place where "
            f"Redis can be found: {error}. Expected {EXPECTED}."
        ) from None


def _several(match: re.Match[str], timeout: float, options: Mapping[str, Any]) -> Place:
    scheme, topology, credentials, hosts, path, query = match.groups(default="")
    nodes = tuple(_address(host, _PORTS[topology]) for host in hosts.split(","))
    service, database = "", path
    sentinel_options = dict(options.get("sentinel_kwargs", {}))
    options = {name: value for name, value in options.items() if name != "sentinel_kwargs"}
    if topology == "sentinel":
        service, _, database = path.partition("/")
        service = unquote(service)
        if not service:
            raise ValueError("the service that the sentinels watch is missing behind the hosts")
    elif database not in ("", "0"):
        raise ValueError(f"a cluster has the database 0 only, not {database!r}")
    if not re.fullmatch(r"\d*", database):
        raise ValueError(f"the database is a number, not {database!r}")
    # Connections are made with the host and port of whichever node it is; here, of none.
    kind, settings = _settings(f"{scheme}://{credentials}node/{database}{query}", timeout, options)
    del settings["host"]
    if topology == "cluster":
        return Place(topology, kind, settings, nodes)
    same = {k: v for k, v in settings.items() if k not in ("username", "password", "db")}
    if "trust" in same and sentinel_options:
        same["trust"] = Trust()
    kind(host="sentinel", **{**same, **sentinel_options})
    return Place(topology, kind, settings, nodes, service, {**same, **sentinel_options})


def _settings(
    url: str, timeout: float, options: Mapping[str, Any]
) -> tuple[type[Any], dict[str, Any]]:
    given: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
    path = urlsplit(url).path.strip("/")
    if not url.startswith("unix:") and path and "db" not in given:
        raise ValueError(f"the database is a number, not {path!r}")
    kind: type[Any] = {
        redis.SSLConnection: TlsConnection,
        redis.UnixDomainSocketConnection: UnixConnection,
    }.get(given.pop("connection_class", None), TcpConnection)
    if kind is UnixConnection and not given.get("path"):
        raise ValueError("the path of the socket is missing")
    settings = {**_defaults(timeout), **options, **given}
    if kind is TlsConnection:
        if str(settings.get("ssl_cert_reqs", "required")) not in ("none", "None"):
            settings.setdefault("ssl_check_hostname", True)
        settings.setdefault("redis_connect_func", heard)
        settings["trust"] = Trust()
    sample: Any = kind(**settings)  # connects to nothing, but knows its options
    if kind is TlsConnection:
        Trust().context(sample)  # here, a file that is missing is found by whoever set it
    return kind, settings


def _address(text: str, port: int) -> Address:
    parts = urlsplit(f"//{text}")
    if not parts.hostname or parts.path:
        raise ValueError(f"{text!r} is not a host and a port")
    return parts.hostname, parts.port or port


def _defaults(timeout: float) -> dict[str, Any]:
    """Return what connections are made with.

    A charge is not idempotent, so nothing is retried. Each further command of a handshake would
    be a round trip that a request waits for, so there are no more than needed.
    """
    silent: dict[str, Any] = {"lib_name": None, "lib_version": None}
    if "driver_info" in inspect.signature(redis.connection.AbstractConnection).parameters:
        silent = {"driver_info": None}
    return {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "decode_responses": False,
        **silent,
    }


def without_password(url: object) -> str:
    """Return a URL as it may be shown."""
    hidden = re.sub(r"(?<=//)([^/@:]*):.*@", r"\1:***@", str(url))
    return re.sub(r"(?<=password=)[^&]*", "***", hidden)
