"""On the server: script calls per second, and memory per client."""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import hiredis
import redis
from limits import parse
from limits.storage import RedisStorage
from limits.strategies import STRATEGIES

from flask_bucket import Charge, Limit, RedisStore
from flask_bucket.stores.redis.links import SCRIPT
from flask_bucket.stores.redis.script import arguments

PLAIN = Path(__file__).with_name("plain.lua").read_bytes()
BATCH = 500
CLIENTS = 10_000

#: Makes the call of a script, given the start of its keys: number of keys, keys, arguments.
Call = Callable[[str], list[Any]]


def plain_call(key: str) -> list[Any]:
    """Return a call of the plain script."""
    return [1, f"{key}-0", 1_000_000, 1_000, 1]


def our_call(charges: int = 1) -> Call:
    """Return the call of our script that makes so many charges."""

    def call(key: str) -> list[Any]:
        limits = [Limit(1_000_000, 1_000 * (n + 1)) for n in range(charges)]
        return arguments(b"take", [Charge(x, f"{key}-{n}") for n, x in enumerate(limits)])

    return call


def script_calls(url: str, rounds: int = 40) -> dict[str, list[float]]:
    """Return the calls per second of the plain script and of ours, which take turns."""
    return calls_of({"plain": (PLAIN, plain_call), "ours": (SCRIPT, our_call())}, url, rounds)


def calls_of(
    scripts: Mapping[str, tuple[bytes, Call]], url: str, rounds: int = 40
) -> dict[str, list[float]]:
    """Return the calls per second of scripts, which take turns.

    The calls are packed beforehand and sent in batches, so that the time is the server's.
    """
    batches = {}
    with redis.Redis.from_url(url) as client:
        address = client.connection_pool.connection_kwargs
        for n, (name, (script, call)) in enumerate(scripts.items()):
            key = f"bucket:{{c}}:bench-{n:02}:per-second"  # all of one length
            command: Any = ("EVALSHA", client.script_load(script), *call(key))
            batches[name] = hiredis.pack_command(command) * BATCH
    figures: dict[str, list[float]] = {name: [] for name in scripts}
    with socket.create_connection((address["host"], address["port"])) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for batch in batches.values():
            connection.sendall(batch)
            _read(connection, BATCH)
        for _ in range(rounds):
            for name, batch in batches.items():
                begin = time.perf_counter()
                connection.sendall(batch)
                _read(connection, BATCH)
                figures[name].append(BATCH / (time.perf_counter() - begin))
    return figures


def _read(connection: socket.socket, replies: int) -> None:
    reader = hiredis.Reader()
    while replies:
        reader.feed(connection.recv(65_536))
        while (reply := reader.gets()) is not False:
            if isinstance(reply, Exception):
                raise reply
            replies -= 1


def calls_ratios(figures: dict[str, list[float]]) -> list[float]:
    """Return our throughput divided by the plain script's, for each round."""
    return [ours / plain for ours, plain in zip(figures["ours"], figures["plain"], strict=True)]


def memory_per_client(url: str) -> dict[str, dict[str, float]]:
    """Return the bytes per client after one request each, including the key."""
    found: dict[str, dict[str, float]] = {}
    with redis.Redis.from_url(url) as client:
        store = RedisStore.from_url(url, timeout=5)
        limit = Limit.parse("100/hour")
        key = "bucket:{{198.18.{}.{}}}:index:per-hour".format
        addresses = [divmod(n, 256) for n in range(CLIENTS)]
        found["flask_bucket"] = _growth(
            client, lambda: [store.take([Charge(limit, key(*a))]) for a in addresses]
        )
        key_length = statistics.mean(len(key(*a)) for a in addresses)
        found["flask_bucket"]["without the key"] = found["flask_bucket"]["bytes"] - key_length
        for name, strategy in STRATEGIES.items():
            limiter = strategy(RedisStorage(url))
            item = parse("100/hour")
            hit = partial(limiter.hit, item)
            found[f"Flask-Limiter {name}"] = _growth(
                client, partial(_all_of, hit, [f"198.18.{a}.{b}" for a, b in addresses])
            )
    return found


def _all_of(hit: Any, addresses: list[str]) -> None:
    for address in addresses:
        hit(address, "index")


def _growth(client: redis.Redis, fill: Any) -> dict[str, float]:
    client.flushall()
    before = client.info("memory")["used_memory"]
    fill()
    after = client.info("memory")["used_memory"]
    client.flushall()
    return {"bytes": (after - before) / CLIENTS}


def memory_of_a_drained_bucket(url: str) -> dict[str, float]:
    """Return the bytes that one client needs after using up a limit of 70,000 a day."""
    found: dict[str, float] = {}
    with redis.Redis.from_url(url) as client:
        client.flushall()
        charge = Charge(Limit.parse("70000/day"), "bucket:{198.18.0.1}:index:per-day", 70_000)
        RedisStore.from_url(url, timeout=5).take([charge])
        found["flask_bucket"] = _all_keys(client)
        for name, strategy in STRATEGIES.items():
            client.flushall()
            strategy(RedisStorage(url)).hit(parse("70000/day"), "198.18.0.1", "index", cost=70_000)
            found[f"Flask-Limiter {name}"] = _all_keys(client)
        client.flushall()
    return found


def _all_keys(client: redis.Redis) -> float:
    usage = (client.memory_usage(key, samples=0) for key in client.scan_iter())
    return float(sum(used or 0 for used in usage))
