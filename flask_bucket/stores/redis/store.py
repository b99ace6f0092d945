"""RedisStore: buckets in Redis or Valkey, one script call for any number of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, TypeVar

import redis

from ...bucket import outcome
from ...decisions import Charge, Charges, Decision, Outcome, no_negative_cost
from ...errors import ConfigError, StoreUnavailable
from ...keys import keys_start
from ..base import checked_now
from . import spread
from .links import SCRIPT as SCRIPT
from .links import Call, Link, link_by, link_to
from .replies import FAILURES, Scattered, scan_literal, translated
from .urls import place

Answer = TypeVar("Answer")


class RedisStore:
    """Keep buckets in Redis: every worker on every machine charges the same ones.

    Thread-safe, and safe to make before a fork: nothing connects before the first call.

    :param client: a ``redis.Redis`` or ``redis.RedisCluster``. Give it timeouts, and no retries:
        a charge that is sent again may be taken twice. :meth:`from_url` sees to that.
    :param key_prefix: what the keys begin with; :meth:`reset` finds a client's buckets by it.
    :raises ConfigError: if `client` is no client.
    """

    def __init__(
        self, client: redis.Redis | redis.RedisCluster, key_prefix: str = "bucket"
    ) -> None:
        if not callable(getattr(client, "execute_command", None)):
            raise ConfigError(
                f"{client!r} is neither a URL, nor a client of redis-py, nor a store. "
                "Expected one, such as 'redis://localhost:6379/0'."
            )
        self._use(link_by(client), key_prefix)

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
        """Make a store for a server, a primary watched by sentinels, or a cluster.

        ``redis://host:6379/0``, ``unix:///path/to.sock``,
        ``redis+sentinel://host:26379,host:26379/service/0``, ``redis+cluster://host:6379,host``;
        with ``rediss`` instead of ``redis`` over TLS. User and password go before the hosts.

        :param timeout: seconds that a request waits at most: for a free connection, to connect,
            and for the reply.
        :param max_connections: in each process; of a cluster, to each node.
        :param options: further arguments of redis-py's connections, such as ``ssl_ca_certs``;
            ``sentinel_kwargs`` are those for the sentinels where they differ.
        :raises ConfigError: if the URL or an option is not one.
        """
        store = cls.__new__(cls)
        link = link_to(place(url, timeout, options), max_connections, timeout)
        store._use(link, key_prefix)
        return store

    def _use(self, link: Link, key_prefix: str) -> None:
        self.key_prefix = key_prefix
        self._link = link
        #: Of a cluster, what says which keys can be charged in one call.
        self._slot: Callable[[str], int] | None = link.slot
        #: Which of several servers decides about some charges, if there are several: one that is
        #: out of reach says nothing about the others.
        self.node_of: Callable[[Sequence[Charge]], Hashable] | None
        self.node_of = None if link.node is None else partial(_nodes, link.node)

    @property
    def client(self) -> Any:
        """A client of redis-py, for what is no charge."""
        return self._link.client()

    def take(
        self,
        charges: Sequence[Charge],
        held: Sequence[Charge] = (),
        shadow: Sequence[Charge] = (),
        now: int | None = None,
    ) -> Decision:
        if (
            isinstance(charges, Charges)
            and now is None
            and not (held or shadow)
            and self._slot is None
        ):
            return _decision(self._run_again(charges), charges, ())
        no_negative_cost((*charges, *held, *shadow))
        if self._slot is not None:
            return self._in_slots(
                (*charges, *held, *shadow),
                lambda: _decision(self._run(b"take", charges, shadow, held, now), charges, shadow),
                lambda part_of: spread.take(self._run, part_of, charges, held, shadow, now),
            )
        return _decision(self._run(b"take", charges, shadow, held, now), charges, shadow)

    def peek(self, charges: Sequence[Charge], now: int | None = None) -> Decision:
        no_negative_cost(charges)
        return self._in_slots(
            charges,
            lambda: _decision(self._run(b"peek", charges, (), (), now), charges, ()),
            lambda part_of: spread.peek(self._run, part_of, charges, now),
        )

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        self._in_slots(
            charges,
            lambda: _nothing(self._run(b"settle", charges, (), (), now)),
            lambda part_of: spread.settle(self._run, part_of, charges, now),
        )

    def reset(self, client: str) -> int:
        pattern = scan_literal(keys_start(self.key_prefix, client)) + "*"
        try:
            keys = list(self.client.scan_iter(match=pattern, count=1000))
            return sum(self.client.unlink(key) for key in keys)
        except FAILURES as error:
            raise translated(error) from error

    def close(self) -> None:
        self._link.close()

    def _in_slots(
        self,
        charges: Sequence[Charge],
        together: Callable[[], Answer],
        apart: Callable[[spread.PartOf], Answer],
    ) -> Answer:
        """Do it in one call if one server can; else in as few as it takes."""
        slot = self._slot
        if slot is None:
            return together()
        try:
            if len({slot(charge.key) for charge in charges}) <= 1:
                return together()
            return apart(slot)
        except Scattered:
            # While a slot is moved to another node, some of its keys are here and some there.
            return apart(str)

    def _run_again(self, charges: Charges) -> list[int]:
        """Charge what comes again and again, with a call that is packed once."""
        link, call = charges.prepared
        if link is not self._link:
            no_negative_cost(charges)
            call = self._link.prepare(*_arguments(b"take", charges, (), (), None))
            charges.prepared = self._link, call
        return _reply(call, len(charges))

    def _run(
        self,
        mode: bytes,
        charges: Sequence[Charge],
        shadow: Sequence[Charge],
        held: Sequence[Charge],
        now: int | None,
    ) -> list[int]:
        if not charges and not shadow and not held:
            return [0]
        call = self._link.prepare(*_arguments(mode, charges, shadow, held, now))
        return _reply(call, 0 if mode == b"settle" else len(charges) + len(shadow))


def _reply(call: Call, charges: int) -> list[int]:
    """Make a call, and return its reply if it is one of the script's."""
    try:
        reply = call()
    except FAILURES as error:
        raise translated(error) from error
    if type(reply) is not list or len(reply) != 1 + 3 * charges or {*map(type, reply)} != {int}:
        raise StoreUnavailable(f"the answer is none of the script's: {reply!r:.100}")
    return reply


def _arguments(
    mode: bytes,
    charges: Sequence[Charge],
    shadow: Sequence[Charge],
    held: Sequence[Charge],
    now: int | None,
) -> list[bytes | str | int]:
    """Return the number of keys, the keys and the arguments of a call of the script."""
    keys: list[bytes | str | int] = []
    arguments: list[bytes | str | int] = [mode]
    for kind, some in ((b"%d", charges), (b"s%d", shadow), (b"h%d", held)):
        for charge in some:
            keys.append(charge.key)
            arguments += (kind % charge.cost, *charge.limit.script_args)
    if now is not None:
        arguments.append(checked_now(now))
    return [len(keys), *keys, *arguments]


def _nodes(node: Callable[[str], Hashable], charges: Sequence[Charge]) -> Hashable:
    nodes = {node(charge.key) for charge in charges}
    return nodes.pop() if len(nodes) == 1 else frozenset(nodes)


def _nothing(reply: object) -> None:
    """Leave a reply unread."""


def _decision(reply: list[int], charges: Sequence[Charge], shadow: Sequence[Charge]) -> Decision:
    now = reply[0]
    outcomes: list[Outcome] = []
    at = 1
    for dry, some in ((False, charges), (True, shadow)):
        for charge in some:
            # What was wanted, the tokens, and their time.
            outcomes.append(outcome(charge, dry, reply[at], reply[at + 1], reply[at + 2], now))
            at += 3
    return Decision.of(tuple(outcomes), now)
