"""RedisStore: buckets in Redis or Valkey, one script call for any number of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar
from weakref import finalize

import redis

from ...decisions import Charge, Decision
from ...errors import ConfigError
from ...keys import keys_start
from ...masking import shown
from .links import Bounds, Link, link_by, link_to
from .replies import FAILURES, Scattered, translated
from .scanning import forget
from .script import Script
from .spread import Spread
from .urls import place

Answer = TypeVar("Answer")


class RedisStore:
    """Keep buckets in Redis: every worker on every machine charges the same ones.

    Thread-safe, and safe to make before a fork: nothing connects before the first call.

    :param client: a ``redis.Redis`` or ``redis.RedisCluster``. Give it timeouts, and no retries:
        a charge that is sent again may be taken twice. :meth:`from_url` sees to that.
    :param key_prefix: what the keys begin with; :meth:`reset` finds a client's buckets by it.
    :raises ConfigError: if `client` is not one of them.
    """

    def __init__(
        self, client: redis.Redis | redis.RedisCluster, key_prefix: str = "bucket"
    ) -> None:
        if not callable(getattr(client, "execute_command", None)):
            raise ConfigError(
                f"RedisStore takes a client of redis-py, not {shown(client)}. Expected one such as "
                "redis.Redis(...). For a URL, write RedisStore.from_url(url)."
            )
        self._use(link_by(client), key_prefix)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        timeout: float = 0.1,
        connect_timeout: float = 2.0,
        max_connections: int = 50,
        key_prefix: str = "bucket",
        **options: Any,
    ) -> RedisStore:
        """Make a store for a server, a primary watched by sentinels, or a cluster.

        ``redis://host:6379/0``, ``unix:///path/to.sock``,
        ``redis+sentinel://host:26379,host:26379/service/0``, ``redis+cluster://host:6379,host``;
        with ``rediss`` instead of ``redis`` over TLS. User and password go before the hosts.

        :param timeout: seconds that a call takes at most: to wait for a connection, and for the
            whole reply.
        :param connect_timeout: seconds that connecting takes at most, in the background.
        :param max_connections: in each process; of a cluster, to each node.
        :param options: further arguments of redis-py's connections, such as ``ssl_ca_certs``;
            ``sentinel_kwargs`` are those for the sentinels where they differ.
        :raises ConfigError: if the URL or an option is not one.
        """
        store = cls.__new__(cls)
        bounds = Bounds(timeout, connect_timeout, max_connections)
        link = link_to(place(url, timeout, connect_timeout, options), bounds)
        store._use(link, key_prefix)
        # For stores that nobody closes. With `__del__`, the garbage collector might find the open
        # sockets before the store; until this has closed them, they are no garbage.
        finalize(store, link.close)
        return store

    def _use(self, link: Link, key_prefix: str) -> None:
        self.key_prefix = key_prefix
        self._link = link
        self._script = Script(link.prepare)
        #: On a cluster, the slot of a key. Keys of one slot can be charged in one call.
        self._slot: Callable[[str], int] | None = link.slot
        #: On a cluster, names the node that serves a key. An outage of one node says nothing
        #: about the others.
        self.node_of: Callable[[str], Hashable] | None = link.node

    @property
    def client(self) -> Any:
        """A client of redis-py, for everything but charges."""
        return self._link.client()

    def take(
        self,
        charges: Sequence[Charge],
        held: Sequence[Charge] = (),
        shadow: Sequence[Charge] = (),
        now: int | None = None,
    ) -> Decision:
        if self._slot is None:
            return self._script.take(charges, held, shadow, now)
        return self._decide(
            (*charges, *held, *shadow), lambda calls: calls.take(charges, held, shadow, now)
        )

    def peek(self, charges: Sequence[Charge], now: int | None = None) -> Decision:
        return self._decide(charges, lambda calls: calls.peek(charges, now))

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        return self._decide(charges, lambda calls: calls.settle(charges, now))

    def reset(self, client: str | None = None, key_prefix: str | None = None) -> int:
        try:
            return forget(self.client, keys_start(key_prefix or self.key_prefix, client))
        except FAILURES as error:
            raise translated(error) from error

    def close(self) -> None:
        self._link.close()

    def _decide(
        self, charges: Iterable[Charge], decide: Callable[[Script | Spread], Answer]
    ) -> Answer:
        """Decide in one call if one node can, else in as few calls as possible."""
        slot = self._slot
        if slot is None:
            return decide(self._script)
        try:
            if len({slot(charge.key) for charge in charges}) <= 1:
                return decide(self._script)
            return decide(Spread(self._script, slot))
        except Scattered:
            # A slot is being moved: some of its keys are on the old node and some on the new one.
            return decide(Spread(self._script, str))
