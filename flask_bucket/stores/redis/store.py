"""RedisStore: buckets in Redis or Valkey, one script call for any number of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha1
from importlib.resources import files
from typing import Any

import redis
from redis.exceptions import NoScriptError, RedisError

from ...bucket import State, outcome
from ...decisions import Charge, Decision, Outcome, no_negative_cost
from ...errors import BucketUnreadable, StoreUnavailable
from ...limits import ConfigError
from ..base import checked_now
from .pool import Pool
from .urls import connections_to

SCRIPT = files("flask_bucket").joinpath("bucket.lua").read_bytes()
SCRIPT_SHA = sha1(SCRIPT, usedforsecurity=False).hexdigest().encode()

#: The server's words for a key that holds no bucket: another type, or a hash of other things.
_NOT_A_BUCKET = re.compile("WRONGTYPE|attempt to (compare|perform arithmetic|call|index)")

#: Runs the script: given a number of keys, the keys and the arguments, returns its reply.
Evaluate = Callable[..., list[int]]


class RedisStore:
    """Keep buckets in Redis: every worker on every machine charges the same ones.

    Thread-safe, and safe to make before a fork: nothing connects before the first call.

    :param client: a client of redis-py. Give it timeouts, and no retries: a charge that is
        sent again may be charged twice. :meth:`from_url` sees to that.
    :param key_prefix: what the keys begin with; :meth:`reset` finds a client's buckets by it.
    :raises ConfigError: if `client` is no client.
    """

    def __init__(self, client: redis.Redis, key_prefix: str = "bucket") -> None:
        if not callable(getattr(client, "execute_command", None)):
            raise ConfigError(
                f"{client!r} is neither a URL, nor a client of redis-py, nor a store. "
                "Expected one, such as 'redis://localhost:6379/0'."
            )
        self.key_prefix = key_prefix
        self.client = client
        self._evaluate = _by_client(client)
        self._close: Callable[[], None] = client.close

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        timeout: float = 0.1,
        max_connections: int = 50,
        key_prefix: str = "bucket",
        **options: Any,
    ) -> RedisStore:
        """Make a store for ``redis://``, ``rediss://`` (TLS) or ``unix://``.

        :param timeout: seconds to connect, to wait for each reply, and for a free connection.
        :param max_connections: in each process.
        :param options: further arguments of redis-py's connections, such as ``ssl_ca_certs``.
        :raises ConfigError: if the URL or an option is not one.
        """
        kind, settings = connections_to(url, timeout, options)
        pool = Pool(lambda: kind(**settings), max_connections, timeout)
        connections = redis.ConnectionPool(connection_class=kind, **settings)
        store = cls(redis.Redis(connection_pool=connections), key_prefix)
        store._evaluate = _by_pool(pool)
        store._close = pool.close
        return store

    def take(
        self,
        charges: Sequence[Charge],
        held: Sequence[Charge] = (),
        shadow: Sequence[Charge] = (),
        now: int | None = None,
    ) -> Decision:
        no_negative_cost((*charges, *held, *shadow))
        return _decision(self._run(b"take", charges, shadow, held, now), charges, shadow)

    def peek(self, charges: Sequence[Charge], now: int | None = None) -> Decision:
        no_negative_cost(charges)
        return _decision(self._run(b"peek", charges, (), (), now), charges, ())

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        self._run(b"settle", charges, (), (), now)

    def reset(self, client: str) -> int:
        pattern = _literal(f"{self.key_prefix}:{{{client}}}:") + "*"
        with _translated():
            keys = list(self.client.scan_iter(match=pattern, count=1000))
            return sum(self.client.unlink(key) for key in keys)

    def close(self) -> None:
        self._close()

    def _run(
        self,
        mode: bytes,
        charges: Sequence[Charge],
        shadow: Sequence[Charge],
        held: Sequence[Charge],
        now: int | None,
    ) -> list[int]:
        keys: list[str] = []
        arguments: list[bytes] = [mode, b"" if now is None else b"%d" % checked_now(now)]
        for kind, some in ((b"take", charges), (b"shadow", shadow), (b"held", held)):
            for charge in some:
                keys.append(charge.key)
                arguments += (kind, b"%d" % charge.cost, *charge.limit.script_args)
        if not keys:
            return [1, 0]
        with _translated():
            return self._evaluate(len(keys), *keys, *arguments)


def _by_pool(pool: Pool) -> Evaluate:
    def evaluate(*arguments: Any) -> list[int]:
        reply: list[int] = pool.run(
            ("EVALSHA", SCRIPT_SHA, *arguments), NoScriptError, ("EVAL", SCRIPT, *arguments)
        )
        return reply

    return evaluate


def _by_client(client: redis.Redis) -> Evaluate:
    execute: Callable[..., list[int]] = client.execute_command

    def evaluate(*arguments: Any) -> list[int]:
        try:
            return execute("EVALSHA", SCRIPT_SHA, *arguments)
        except NoScriptError:
            # A server that restarted, or flushed its scripts, has charged nothing yet.
            return execute("EVAL", SCRIPT, *arguments)

    return evaluate


def _decision(reply: list[int], charges: Sequence[Charge], shadow: Sequence[Charge]) -> Decision:
    now = reply[1]
    outcomes: list[Outcome] = []
    for i, charge in enumerate((*charges, *shadow)):
        affordable, tokens, last_refill, wanted = reply[4 * i + 2 : 4 * i + 6]
        state = State(tokens, last_refill, charge.limit.scale)
        outcomes.append(outcome(charge, i >= len(charges), affordable == 1, wanted, state, now))
    return Decision.of(tuple(outcomes), now)


@contextmanager
def _translated() -> Iterator[None]:
    """Raise what the client library raises as StoreUnavailable."""
    try:
        yield
    except (RedisError, OSError) as error:
        reason = f"{type(error).__name__}: {error}"
        kind = BucketUnreadable if _NOT_A_BUCKET.search(str(error)) else StoreUnavailable
        raise kind(reason) from error


def _literal(text: str) -> str:
    """Escape what SCAN's patterns would read as a wildcard."""
    return re.sub(r"([*?\[\]\\^-])", r"\\\1", text)
