"""The checks of ``flask bucket doctor`` that ask the server: codes FB101 to FB109."""

from __future__ import annotations

from collections.abc import Iterator

from ..decisions import Charge
from ..enforcing import Enforcer
from ..errors import StoreUnavailable
from ..limits import Limit
from ..stores.base import innermost
from ..stores.redis.inspection import Node, RedisServer
from ..stores.redis.options import NO_RETRIES, Waits
from .findings import Finding

_OLDEST = {"Redis": (6, 2), "Valkey": (7, 2)}

#: Seconds. A server in the same network answers sooner.
LONG_ROUND_TRIP = 0.01

#: A client and a scope that nobody has: spelled keys hold no exclamation mark.
_PROBE = "{!doctor}:doctor:probe"


def server_checks(state: Enforcer, server: RedisServer) -> Iterator[Finding]:
    """Yield the findings about the server, in the order of the codes."""
    try:
        seconds = server.round_trip()
    except StoreUnavailable as error:
        yield Finding(
            "FB101",
            "error",
            f"The server does not answer: {error.reason}",
            "Check BUCKET_REDIS_URL, the password, the network, and that the server runs.",
        )
    else:
        yield Finding("FB101", "ok", f"The server answers in {seconds * 1000:.2f} ms.")
        yield from _round_trip(seconds, state.config.timeout)
        yield from _nodes(server)
        yield from _deciding(state)
        yield from _permissions(state, server)
    yield from _client(server, state.config.timeout)


def _nodes(server: RedisServer) -> Iterator[Finding]:
    try:
        nodes = server.nodes()
    except StoreUnavailable as error:
        yield Finding(
            "FB107",
            "warning",
            f"The server does not answer INFO or TIME: {error.reason}",
            "Allow the user to run them. Otherwise doctor cannot check the server's version, "
            "clock, memory and persistence.",
        )
        return
    for node in nodes:
        yield from _node(node)


def _round_trip(seconds: float, timeout: float) -> Iterator[Finding]:
    if seconds > min(timeout / 4, LONG_ROUND_TRIP):
        yield Finding(
            "FB102",
            "warning",
            f"A round trip takes {seconds * 1000:.1f} ms, and every limited request waits for one.",
            f"Move the server closer. A call that takes longer than BUCKET_TIMEOUT ({timeout:g} s) "
            "counts as an outage.",
        )


def _node(node: Node) -> Iterator[Finding]:
    yield _version(node)
    if abs(node.clock_offset) > 1:
        ahead = "ahead of" if node.clock_offset > 0 else "behind"
        yield Finding(
            "FB104",
            "warning",
            f"The clock of {node.name} is {abs(node.clock_offset):.1f} s {ahead} this host's.",
            "The limits still hold, because only the server's clock counts. But X-RateLimit-Reset "
            "is a time of that clock, so clients may wait too long or too short. Run NTP on both.",
        )
    yield from _eviction(node)
    yield from _persistence(node)


def _version(node: Node) -> Finding:
    version = ".".join(map(str, node.version))
    what = f"{node.name} is {node.engine} {version}"
    if node.version >= _OLDEST[node.engine]:
        return Finding("FB103", "ok", what + ".")
    return Finding(
        "FB103",
        "error",
        f"{what}, which is too old.",
        "Upgrade it to Redis 6.2, Valkey 7.2, or later.",
    )


def _eviction(node: Node) -> Iterator[Finding]:
    if not node.max_memory or node.eviction is None:
        return
    if node.eviction != "noeviction":
        yield Finding(
            "FB105",
            "warning",
            f"When the memory of {node.name} is full, it evicts keys ({node.eviction}).",
            "A bucket that is evicted is full again. Give the limiter a server of its own with "
            "maxmemory-policy noeviction, and watch its memory.",
        )
    elif node.used_memory > 0.8 * node.max_memory:
        yield Finding(
            "FB105",
            "warning",
            f"{node.name} uses {node.used_memory / node.max_memory:.0%} of its memory.",
            "When it is full, writes fail and BUCKET_ON_ERROR decides. Raise maxmemory.",
        )


def _persistence(node: Node) -> Iterator[Finding]:
    if not node.log and node.snapshots is False:
        yield Finding(
            "FB106",
            "note",
            f"{node.name} stores nothing on disk, so all buckets are full after a restart.",
            "That is often fine. If limits with long periods must survive a restart, set "
            "appendonly yes.",
        )


def _deciding(state: Enforcer) -> Iterator[Finding]:
    """Charge a bucket of no client: only that tries the permissions of the script itself."""
    try:
        innermost(state.store).take([Charge(Limit(1, 1), probe(state))])
    except StoreUnavailable as error:
        yield Finding(
            "FB107",
            "error",
            f"The server answers, but cannot run the script: {error.reason}",
            "Allow the user to run EVALSHA, EVAL, TIME, HMGET, HSET and PEXPIRE on keys that begin "
            f"with {state.spelling.prefix}: (ACL SETUSER), and check that the server accepts "
            "writes.",
        )


def _permissions(state: Enforcer, server: RedisServer) -> Iterator[Finding]:
    try:
        forbidden = server.may_not(probe(state))
    except StoreUnavailable:
        return  # just now it did answer; the next run will tell
    if forbidden:
        yield Finding(
            "FB107",
            "warning",
            f"The server forbids {', '.join(forbidden)}.",
            "The limits still hold. But reset, show and top need these commands.",
        )


def probe(state: Enforcer) -> str:
    """Return a key of no client."""
    return f"{state.spelling.prefix}:{_PROBE}"


def _client(server: RedisServer, timeout: float) -> Iterator[Finding]:
    try:
        waits = server.waits()
    except StoreUnavailable:
        return  # a cluster's client connects when it is made; its absence was reported
    if waits is None:
        return
    if waits.missing:
        yield Finding(
            "FB108",
            "error",
            f"The client has no {waits.missing}.",
            "If the server hangs, every request hangs with it. Set them, for example to 0.1 s. Or "
            "name the server in BUCKET_REDIS_URL: then BUCKET_TIMEOUT applies.",
        )
    else:
        yield _slower(waits, timeout)
    if waits.repeats:
        yield Finding(
            "FB109",
            "warning",
            f"The client repeats a command that failed, {waits.repeats}.",
            "If an answer is lost, the repeated command charges the request again. And an outage "
            f"is noticed later. Use {NO_RETRIES}.",
        )


def _slower(waits: Waits, timeout: float) -> Finding:
    said = f"connects within {waits.connect_timeout:g} s and waits {waits.reply_timeout:g} s"
    return Finding(
        "FB108",
        "note",
        f"The client was handed in: it {said} for each part of a reply.",
        f"BUCKET_TIMEOUT ({timeout:g} s) and BUCKET_CONNECT_TIMEOUT do not apply to it. To use "
        "them, name the server in BUCKET_REDIS_URL.",
    )
