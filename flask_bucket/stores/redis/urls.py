"""From a URL to connections of redis-py: with timeouts, without retries, without ceremony."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry

from ...limits import ConfigError

EXPECTED = "redis://host:6379/0, rediss://host:6380/0 (TLS) or unix:///path/to.sock"


def connections_to(
    url: str, timeout: float, options: Mapping[str, Any]
) -> tuple[type[Any], dict[str, Any]]:
    """Return a class of connections and its arguments.

    :raises ConfigError: if the URL or an option is not one.
    """
    try:
        settings = {**_defaults(timeout), **options, **parse_url(url)}  # type: ignore[no-untyped-call]
        kind = settings.pop("connection_class", redis.Connection)
        kind(**settings)  # connects to nothing, but knows its options
    except (ValueError, TypeError, AttributeError, redis.RedisError) as error:
        raise ConfigError(
            f"{without_password(url)!r} with the options {sorted(options)} is not a place where "
            f"Redis can be found: {error}. Expected {EXPECTED}."
        ) from None
    return kind, settings


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
    try:
        password = urlsplit(str(url)).password
    except ValueError:
        password = None
    return str(url).replace(f":{password}@", ":***@") if password else str(url)
