"""RedisStore: buckets in Redis or Valkey, one script call for any number of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha1
from importlib.resources import files
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.exceptions import NoScriptError, RedisError

from ..bucket import State, outcome
from ..decisions import Charge, Decision, no_negative_cost
from ..errors import BucketUnreadable, StoreUnavailable
from ..limits import ConfigError
from .base import checked_now

SCRIPT = files("flask_bucket").joinpath("bucket.lua").read_bytes()
SCRIPT_SHA = sha1(SCRIPT, usedforsecurity=False).hexdigest().encode()

#: The server's words for a key that holds no bucket: another type, or a hash of other things.
_NOT_A_BUCKET = re.compile("WRONGTYPE|attempt to (compare|perform arithmetic|call|index)")


class RedisStore:
    """Keep buckets in Redis: every worker on every machine charges the same ones.

    Thread-safe, and safe to make before a fork: nothing connects before the first call.

    :param client: a ``redis.Redis``. Give it timeouts, and no retries: a retried charge may be
        charged twice. `from_url` makes one like that.
    :param key_prefix: what the keys begin with; `reset` finds a client's buckets by it.
    """

    def __init__(self, client: redis.Redis, key_prefix: str = "bucket") -> None:
        self._setup(lambda: client, key_prefix)

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
        :raises ConfigError: if the URL is not one of these.
        """
        connection_options = {
            "socket_timeout": timeout,
            "socket_connect_timeout": timeout,
            "retry_on_timeout": False,
            "retry_on_error": [],
            "retry": None,
            "protocol": 2,
            **options,
        }
        try:
            redis.connection.parse_url(url)
        except (ValueError, AttributeError, TypeError) as error:
            raise ConfigError(
                f"{_without_password(url)!r} is not a URL of Redis: {error}. "
                "Expected redis://host:6379/0, rediss://host:6380/0 (TLS) or unix:///path.sock."
            ) from None

        def connect() -> redis.Redis:
            pool = redis.BlockingConnectionPool.from_url(
                url, max_connections=max_connections, timeout=timeout, **connection_options
            )
            return redis.Redis(connection_pool=pool)

        store = cls.__new__(cls)
        store._setup(connect, key_prefix)
        return store

    def _setup(self, connect: Callable[[], redis.Redis], key_prefix: str) -> None:
        self.key_prefix = key_prefix
        self._connect = connect
        self._client: redis.Redis | None = None
        self._lock = Lock()

    @property
    def client(self) -> redis.Redis:
        """The client of this process, made when it is first needed."""
        if self._client is None:
            with self._lock:
                if self._client is None:
                    self._client = self._connect()
        return self._client

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
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client.connection_pool.disconnect()

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
            return self._evaluate((len(keys), *keys, *arguments))

    def _evaluate(self, arguments: tuple[Any, ...]) -> list[int]:
        try:
            return self.client.execute_command("EVALSHA", SCRIPT_SHA, *arguments)
        except NoScriptError:
            # A server that restarted, or flushed its scripts, has charged nothing yet.
            return self.client.execute_command("EVAL", SCRIPT, *arguments)


def _decision(reply: list[int], charges: Sequence[Charge], shadow: Sequence[Charge]) -> Decision:
    allowed_, now, *rows = reply
    outcomes = []
    for i, charge in enumerate((*charges, *shadow)):
        affordable, tokens, last_refill, wanted = rows[4 * i : 4 * i + 4]
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


def _without_password(url: object) -> str:
    try:
        password = urlsplit(str(url)).password
    except ValueError:
        password = None
    return str(url).replace(f":{password}@", ":***@") if password else str(url)
