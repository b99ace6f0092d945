"""Buckets as the commands show them: the stored state, read with the bucket's limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from ..bound import read_numbers
from ..bucket import State, refresh, wait
from ..decisions import Kind
from ..enforcing import Enforcer
from ..keys import KIND_MARKS, SCOPE_MARK, KeyParts
from ..limits import SECOND, Limit
from ..slots import Holders, last_free
from ..stores.redis.inspection import RedisServer, Stored
from .output import Failure
from .states import KnownLimits, known_limits


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket of one client, now."""

    limiter: str
    client: str
    #: Spelled as in its key.
    scope: str
    name: str
    kind: Kind
    #: None if it is not known: no rule has the limits of an earlier deploy, and a store notes
    #: nothing with slots.
    limit: Limit | None
    #: Whether a function returned the limit, and the function's name if a rule has it.
    from_function: bool
    function: str | None
    #: Whole tokens. Below zero after more was settled than there was. Of slots: those free.
    tokens: int
    #: Seconds until the next token, and until the bucket is full. None if the limit is unknown. A
    #: full bucket has no next token. Slots are free by then, and most are given back earlier.
    next_in: float | None
    full_in: float | None

    @property
    def place(self) -> str:
        """Where the limit applies, for people: ``api.items blueprint``, ``application``."""
        first, *marks = self.scope.split(SCOPE_MARK)
        if read_numbers(self.scope, self.name):
            marks.pop()  # which says the limit that a function returned
        marks = [mark for mark in marks if not mark.startswith("callable")]
        return " ".join(unquote(part) for part in (first, *marks) if part)

    @property
    def known_tokens(self) -> int | None:
        """The whole tokens; None of slots whose limit is not known, since only held ones are."""
        return None if self.kind == "slot" and self.limit is None else self.tokens

    @property
    def is_banned(self) -> bool:
        """Whether the client is banned."""
        return self.kind == "ban" and self.tokens < 1

    @property
    def fill(self) -> float:
        """How full it is, from 0 to 1. Without a known limit, it is full unless it is empty."""
        if self.limit is None:
            return float(self.tokens > 0)
        return self.tokens / self.limit.capacity

    def as_data(self) -> dict[str, Any]:
        """Return the bucket for programs."""
        return {
            "limiter": self.limiter,
            "client": self.client,
            "scope": unquote(self.scope),
            "name": self.name,
            "limit": None if self.limit is None else str(self.limit),
            "kind": self.kind,
            "from_function": self.from_function,
            "function": self.function,
            "tokens": self.known_tokens,
            "capacity": None if self.limit is None else self.limit.capacity,
            "next_in": self.next_in,
            "full_in": self.full_in,
        }


def server_of(limiter: str, state: Enforcer) -> RedisServer:
    """Return the server that holds a Limiter's buckets.

    :raises Failure: if the serving processes keep them in memory.
    """
    server = RedisServer.behind(state.store)
    if server is None:
        raise Failure(
            f"The Limiter {limiter!r} keeps its buckets in the memory of the serving processes, "
            "where no command can see them. Set BUCKET_REDIS_URL (FLASK_BUCKET_REDIS_URL in "
            "the environment).",
            1,
        )
    return server


def stored(
    limiter: str, state: Enforcer, client: str | None = None, kind: Kind | None = None
) -> Iterator[Bucket]:
    """Yield the buckets of a Limiter that are not full, or those of one client or kind.

    :param client: spelled as in its keys.
    """
    server = server_of(limiter, state)
    known = known_limits(state)
    now = server.clock()
    for found in server.buckets(client, kind):
        parts = KeyParts.of(found.key)
        if parts is not None:
            yield _bucket(limiter, parts, found, known, now)


def _bucket(limiter: str, parts: KeyParts, found: Stored, known: KnownLimits, now: int) -> Bucket:
    kept, in_key = found.kept, read_numbers(parts.scope, parts.name)
    limit = known.written.get(parts.ending) or found.noted or known.returned.get(parts.ending)
    limit, function = limit or in_key, known.function(parts)
    if isinstance(kept, State):
        tokens, next_in, full_in = _tokens(kept, limit, now)
    else:
        tokens, next_in, full_in = _free_slots(kept, limit, now)
    shown = parts.readable()
    return Bucket(
        limiter=limiter,
        client=shown.client,
        scope=parts.scope,
        name=shown.name.removeprefix(KIND_MARKS[parts.kind]),
        kind=parts.kind,
        limit=limit,
        from_function=function is not None or in_key is not None,
        function=function,
        tokens=tokens,
        next_in=next_in,
        full_in=full_in,
    )


def _tokens(kept: State, limit: Limit | None, now: int) -> tuple[int, float | None, float | None]:
    """Return the tokens of a bucket, and the seconds until the next one and until it is full."""
    if limit is None:
        return kept.tokens // kept.scale, None, None
    now = max(now, kept.last_refill) if kept.last_refill - now < SECOND else now
    state, _ = refresh(limit, kept, now)
    tokens, next_in = state.tokens // limit.scale, None
    if tokens < limit.capacity:
        next_in = (wait(limit, state, now, max(tokens, 0) + 1) or 0) / SECOND
    return tokens, next_in, (wait(limit, state, now, limit.capacity) or 0) / SECOND


def _free_slots(
    holders: Holders, limit: Limit | None, now: int
) -> tuple[int, float | None, float | None]:
    """Return how many slots are free, and the seconds until the next is and until all are."""
    held = [free for free in holders.values() if free > now]
    if limit is None:
        return 0 if held else 1, None, None
    next_in = (min(held) - now) / SECOND if held else None
    return limit.capacity - len(held), next_in, (last_free(holders, now) - now) / SECOND
