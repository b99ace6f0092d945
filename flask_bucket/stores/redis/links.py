"""Links: the ways by which a script call reaches a server, for each kind of server."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import sha1
from importlib.resources import files
from typing import Any

import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import NoScriptError

from .cluster import Cluster, slot
from .connections import Address, leading
from .pool import Change, Pool, packed
from .sentinel import Sentinels
from .urls import Place

SCRIPT = files("flask_bucket").joinpath("bucket.lua").read_bytes()
SCRIPT_SHA = sha1(SCRIPT, usedforsecurity=False).hexdigest().encode()

#: Runs the script, and returns its reply.
Call = Callable[[], list[int]]

logger = logging.getLogger("flask_bucket")


@dataclass(frozen=True, slots=True)
class Link:
    """One way to a server, or to several."""

    #: Prepares a call of the script, given a number of keys, the keys and the arguments. It can be
    #: made any number of times.
    prepare: Callable[..., Call]
    close: Callable[[], None]
    #: Returns a client of redis-py, for what is no charge.
    client: Callable[[], Any]
    #: Where keys must share a slot to be charged together: the slot of a key.
    slot: Callable[[str], int] | None = None
    #: Where one server may fail and others not: the one that serves a key.
    node: Callable[[str], Hashable] | None = None


def link_to(place: Place, size: int, timeout: float) -> Link:
    """Return a link with pools of our own, which keep to the timeout."""
    if place.topology == "cluster":
        return _to_cluster(place, size, timeout)
    kind: type[Any] = place.kind
    settings = dict(place.settings)
    if place.topology == "sentinel":
        assert place.sentinel_settings is not None
        sentinels = Sentinels(kind, place.sentinel_settings, place.nodes, place.service)
        kind = leading(kind)
        settings["primary"] = sentinels.primary
    pool = Pool(lambda: kind(**settings), size, timeout)

    def prepare(*arguments: Any) -> Call:
        return partial(pool.run, *_script_call(arguments))

    client = redis.Redis(connection_pool=redis.ConnectionPool(connection_class=kind, **settings))
    return Link(prepare, _both(pool.close, client.close), lambda: client)


def _to_cluster(place: Place, size: int, timeout: float) -> Link:
    settings = dict(place.settings)
    # Before redis-py 6, only this parser tells redirections from other errors.
    if (parser := getattr(redis.cluster, "ClusterParser", None)) is not None:
        settings.setdefault("parser_class", parser)

    def pool(node: Address) -> Pool:
        return Pool(lambda: place.kind(host=node[0], port=node[1], **settings), size, timeout)

    cluster = Cluster(pool, place.nodes, timeout)

    def prepare(*arguments: Any) -> Call:
        return partial(cluster.run, arguments[1], *_script_call(arguments))

    client = lru_cache(maxsize=1)(partial(_cluster_client, place))

    def close() -> None:
        cluster.close()
        if client.cache_info().currsize:
            client().close()

    return Link(prepare, close, client, slot, cluster.node)


def _script_call(arguments: Sequence[Any]) -> tuple[bytes, type[Exception], Change]:
    """Return a command, and what to make of it if the server does not know the script."""
    return packed("EVALSHA", SCRIPT_SHA, *arguments), NoScriptError, _with_script


def _with_script(command: bytes) -> bytes:
    return command.replace(_NAMED, _WHOLE, 1)


# How a call begins, behind the number of its parts: it names the script, or brings it along.
_NAMED, _WHOLE = (
    packed(*words).partition(b"\r\n")[2] for words in (("EVALSHA", SCRIPT_SHA), ("EVAL", SCRIPT))
)


def _cluster_client(place: Place) -> Any:
    """Return redis-py's own client, for what is no charge; it connects at once."""
    ours = ("trust", "retry", "db", "redis_connect_func", "driver_info", "lib_name", "lib_version")
    settings = {k: v for k, v in place.settings.items() if k not in ours}
    if issubclass(place.kind, redis.SSLConnection):
        settings["ssl"] = True
    nodes = [ClusterNode(*node) for node in place.nodes]  # type: ignore[no-untyped-call]
    return RedisCluster(startup_nodes=nodes, **settings)


def link_by(client: Any) -> Link:
    """Return a link by a client that was handed in."""
    execute: Callable[..., list[int]] = client.execute_command

    def evaluate(*arguments: Any) -> list[int]:
        try:
            return execute("EVALSHA", SCRIPT_SHA, *arguments)
        except NoScriptError:
            # A server that restarted, or flushed its scripts, has charged nothing yet.
            return execute("EVAL", SCRIPT, *arguments)

    def prepare(*arguments: Any) -> Call:
        return partial(evaluate, *arguments)

    warn_of(client)
    is_cluster = isinstance(client, RedisCluster)
    return Link(prepare, client.close, lambda: client, slot if is_cluster else None)


def warn_of(client: Any) -> None:
    """Log what would make a client of the user's charge twice, or wait without end."""
    try:
        connection = _connection(client)
        retries = _retries(client, connection)
    except Exception:
        return  # of another make: nothing is known about it
    if retries:
        logger.warning(
            "The client of Redis that was handed in sends a command again when it fails, up to "
            "%s times. A charge that is sent twice may be taken twice: make the client with "
            "retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0).",
            retries,
        )
    missing = [
        name
        for name in ("socket_timeout", "socket_connect_timeout")
        if getattr(connection, name, 0) is None
    ]
    if missing:
        logger.warning(
            "The client of Redis that was handed in has no %s, so requests may wait for as long "
            "as Redis does not answer. Make it with a timeout, such as 0.1 seconds.",
            " and no ".join(missing),
        )


def _connection(client: Any) -> Any:
    """Return a connection as the client would make one, not connected."""
    if isinstance(client, RedisCluster):
        settings: dict[str, Any] = client.get_connection_kwargs()  # type: ignore[no-untyped-call]
        known = ("socket_timeout", "socket_connect_timeout")
        return redis.Connection(**{k: settings[k] for k in known if k in settings})  # type: ignore[no-untyped-call]
    pool = client.connection_pool
    return pool.connection_class(**pool.connection_kwargs)


def _retries(client: Any, connection: Any) -> int:
    if not isinstance(client, RedisCluster):
        return int(connection.retry._retries)
    retry = getattr(client, "retry", None)
    # Before redis-py 6, a cluster's client counted for itself.
    own: int = getattr(client, "cluster_error_retry_attempts", 0)
    return max(own, 0 if retry is None else int(retry._retries))


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def close() -> None:
        first()
        second()

    return close
