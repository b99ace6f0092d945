"""Links: the ways by which a script call reaches a server, for each kind of server."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import sha1
from importlib.resources import files
from typing import Any

import redis
from redis import exceptions
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import NoScriptError, RedisError

from .cluster import Cluster, slot
from .dialing import Address, Dialer
from .options import NO_RETRIES, Waits
from .pool import Change, Pool
from .sentinel import Sentinels
from .urls import Place
from .wire import BROKEN, packed

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
    #: Returns a client of redis-py, for everything that is not a charge.
    client: Callable[[], Any]
    #: Where keys must share a slot to be charged together: the slot of a key.
    slot: Callable[[str], int] | None = None
    #: On several servers, the one that serves a key: it may fail while others do not.
    node: Callable[[str], Hashable] | None = None
    #: Whether the client was handed in: then it waits and retries by settings of its own.
    is_handed_in: bool = False


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long requests wait, and how many connections there are."""

    #: Seconds that a call takes at most, and seconds that connecting takes at most.
    timeout: float
    connect_timeout: float
    #: Connections to each server, in each process.
    connections: int


def link_to(place: Place, bounds: Bounds) -> Link:
    """Return a link with pools of our own, which keep to the bounds."""
    if place.topology == "cluster":
        return _to_cluster(place, bounds)
    if place.topology == "sentinel":
        return _by_sentinels(place, bounds)
    pool = _pool(bounds, lambda: Dialer(place.kind, place.settings, bounds.connect_timeout))
    client = _client(place.kind, place.settings)
    return Link(_to(pool), _both(pool.close, client.close), lambda: client)


def _by_sentinels(place: Place, bounds: Bounds) -> Link:
    def sentinels() -> Sentinels:
        settings, seconds = place.sentinel_settings, bounds.connect_timeout
        return Sentinels(
            {
                node: Dialer(place.kind, {**settings, "host": node[0], "port": node[1]}, seconds)
                for node in place.nodes
            },
            place.service,
        )

    def dialer() -> Dialer:
        primary = sentinels().primary
        return Dialer(place.kind, place.settings, bounds.connect_timeout, primary)

    clients: dict[Address, Any] = {}

    def client() -> Any:
        host, port = primary = sentinels().primary(time.monotonic() + bounds.connect_timeout)
        if primary not in clients:
            clients[primary] = _client(place.kind, {**place.settings, "host": host, "port": port})
        return clients[primary]

    def close() -> None:
        pool.close()
        for made in tuple(clients.values()):
            made.close()

    pool = _pool(bounds, dialer)
    return Link(_to(pool), close, client)


def _to_cluster(place: Place, bounds: Bounds) -> Link:
    def dialer(node: Address) -> Dialer:
        settings = {**place.settings, "host": node[0], "port": node[1]}
        return Dialer(place.kind, settings, bounds.connect_timeout)

    cluster = Cluster(
        lambda node: _pool(bounds, partial(dialer, node)),
        dialer,
        place.nodes,
        bounds.timeout,
        bounds.connect_timeout,
    )

    def prepare(*arguments: Any) -> Call:
        return partial(cluster.run, arguments[1], *_script_call(arguments))

    client = lru_cache(maxsize=1)(partial(_cluster_client, place))

    def close() -> None:
        cluster.close()
        if client.cache_info().currsize:
            client().close()

    return Link(prepare, close, client, slot, cluster.node)


def _pool(bounds: Bounds, dialer: Callable[[], Dialer]) -> Pool:
    return Pool(dialer, bounds.connections, bounds.timeout, bounds.connect_timeout)


def _to(pool: Pool) -> Callable[..., Call]:
    def prepare(*arguments: Any) -> Call:
        return partial(pool.run, *_script_call(arguments))

    return prepare


def _script_call(arguments: Sequence[Any]) -> tuple[bytes, type[Exception], Change]:
    """Return a command, and how to change it if the server does not know the script."""
    return packed("EVALSHA", SCRIPT_SHA, *arguments), NoScriptError, _with_script


def _with_script(command: bytes) -> bytes:
    return command.replace(_NAMED, _WHOLE, 1)


# How a call begins, after the number of its parts: it names the script, or contains it.
_NAMED, _WHOLE = (
    packed(*words).partition(b"\r\n")[2] for words in (("EVALSHA", SCRIPT_SHA), ("EVAL", SCRIPT))
)


def _client(kind: type[Any], settings: Any) -> Any:
    pool = redis.ConnectionPool(connection_class=kind, **settings)
    return redis.Redis(connection_pool=pool)


def _cluster_client(place: Place) -> Any:
    """Return redis-py's own client, which connects at once."""
    ours = ("retry", "db")
    settings = {k: v for k, v in place.settings.items() if k not in ours}
    if place.kind is redis.SSLConnection:
        settings["ssl"] = True
    nodes = [ClusterNode(*node) for node in place.nodes]  # type: ignore[no-untyped-call]  # redis-py's
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
        except RedisError:
            raise
        except BROKEN as error:
            # redis-py's parsers and pools let through TypeError, IndexError, MemoryError.
            raise exceptions.ConnectionError(f"{type(error).__name__}: {error}") from error

    def prepare(*arguments: Any) -> Call:
        return partial(evaluate, *arguments)

    warn_of(client)
    is_cluster = isinstance(client, RedisCluster)
    return Link(
        prepare, client.close, lambda: client, slot if is_cluster else None, is_handed_in=True
    )


def warn_of(client: Any) -> None:
    """Log a warning if a user's client may charge twice, or wait for ever."""
    try:
        waits = Waits.of(client)
    except Exception:
        return  # not redis-py's client, so nothing is known about it
    if waits.repeats:
        logger.warning(
            "The client of Redis that was handed in sends a command that failed %s. A charge that "
            "is sent twice may be taken twice: make the client with %s.",
            waits.repeats,
            NO_RETRIES,
        )
    if waits.missing:
        logger.warning(
            "The client of Redis that was handed in has no %s, so requests may wait for as long "
            "as Redis does not answer. Make it with a timeout, such as 0.1 seconds.",
            waits.missing,
        )


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def close() -> None:
        first()
        second()

    return close
