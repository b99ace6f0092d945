"""OutageStore: what happens to requests while the store behind it is out of reach."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from math import ceil
from threading import Lock
from typing import Literal, TypeVar

from ..decisions import Charge, Decision
from ..errors import BucketUnreadable, ConfigError, StoreUnavailable
from ..limits import Limit
from .base import Store
from .memory import MemoryStore

Policy = Literal["allow", "deny", "local"]

Answer = TypeVar("Answer")

logger = logging.getLogger("flask_bucket")

#: Seconds between two log lines about buckets that cannot be read.
QUIET = 1.0


@dataclass(frozen=True, slots=True)
class Health:
    """How a store does, as far as its last calls tell."""

    #: ``"ok"``; ``"degraded"``: the outage policy decides; ``"recovering"``: the store answers
    #: again, but nothing was written yet that would prove it well.
    state: Literal["ok", "degraded", "recovering"] = "ok"
    #: Unix time at which the outage began.
    since: float | None = None
    #: What began it, in the words of the client library.
    reason: str | None = None
    #: Seconds until the store is tried again; 0.0 unless degraded.
    next_try: float = 0.0


class Breaker:
    """Says when a store that fails is to be tried: once in every interval, by one request.

    Thread-safe, and never locked during a call: those who need not try do not wait.

    An answer lets all calls through again, but only one that wrote something ends the outage: a
    server that takes no writes (no memory left, a replica) still answers those that are refused,
    and would seem to recover with each.

    :param interval: seconds between tries.
    :param clock: seconds, monotonic.
    """

    def __init__(self, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.interval = interval
        self._clock = clock
        self._lock = Lock()
        self._next_try: float | None = None
        self._outage: tuple[float, str] | None = None
        #: Counts the changes, so that a call that began before one cannot make another.
        self._changes = 0

    @property
    def is_open(self) -> bool:
        """Whether calls are held back, because the store is taken to be out of reach."""
        return self._next_try is not None

    @property
    def doubts(self) -> bool:
        """Whether there is an outage that a call which goes well may end."""
        return self._outage is not None

    def seconds_to_next_try(self) -> float:
        """Return the seconds until the store is tried again; 0.0 while it is well."""
        next_try = self._next_try
        return 0.0 if next_try is None else max(0.0, next_try - self._clock())

    def health(self) -> Health:
        """Return what is known, asking nobody."""
        with self._lock:
            if self._outage is None:
                return Health()
            state: Literal["degraded", "recovering"] = "degraded" if self.is_open else "recovering"
            return Health(state, *self._outage, self.seconds_to_next_try())

    def enter(self) -> int | None:
        """Return a ticket for one call, or None if the store is not to be tried now."""
        if self._next_try is None:
            return self._changes
        with self._lock:
            now = self._clock()
            if self._next_try is not None:
                if now < self._next_try:
                    return None
                self._next_try = now + self.interval
            return self._changes

    def succeeded(self, ticket: int, wrote: Callable[[], bool] = lambda: True) -> bool:
        """Note that a call went well; return whether that ends an outage.

        :param wrote: says whether anything was written.
        """
        if self._outage is None:
            return False
        with self._lock:
            if self._outage is None or ticket != self._changes:
                return False
            if self._next_try is not None:
                self._next_try, self._changes = None, self._changes + 1
            if not wrote():
                return False
            self._outage = None
            return True

    def failed(self, ticket: int, reason: str = "") -> bool:
        """Note that a call failed; return whether that begins an outage."""
        with self._lock:
            if ticket != self._changes:
                return False
            if self._next_try is None:
                self._changes += 1
            self._next_try = self._clock() + self.interval
            if self._outage is not None:
                return False
            self._outage = (time.time(), reason)
            return True


class OutageStore:
    """Stands before another store and decides in its place while that one cannot.

    :param policy: ``"allow"`` lets every request pass; ``"deny"`` refuses every one;
        ``"local"`` counts in this process, each limit scaled by `local_share`.
    :param recovery_interval: seconds between tries of the store during an outage.
    :param on_outage: called with the reason when an outage begins.
    :param on_recovery: called when it ends.
    """

    def __init__(
        self,
        store: Store,
        policy: Policy = "allow",
        *,
        recovery_interval: float = 1.0,
        local_share: float = 1.0,
        on_outage: Callable[[str], object] = lambda reason: None,
        on_recovery: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self.policy = policy
        self.breaker = Breaker(recovery_interval, clock)
        self._breakers: dict[Hashable, Breaker] = {None: self.breaker}
        # A store of several servers says which one decides: the others may be well.
        self._node_of: Callable[[Sequence[Charge]], Hashable] | None
        self._node_of = getattr(store, "node_of", None)
        self._clock = clock
        self._quiet_until = float("-inf")
        self._on_outage = on_outage
        self._on_recovery = on_recovery
        self._local = MemoryStore()
        # Limits made by callables are without number, so those scaled are kept bounded.
        share = Fraction(str(local_share)).limit_denominator(1_000_000)  # 0.333... is a third
        self._scaled = lru_cache(maxsize=1000)(partial(share_of, share=share))

    def take(
        self,
        charges: Sequence[Charge],
        held: Sequence[Charge] = (),
        shadow: Sequence[Charge] = (),
        now: int | None = None,
    ) -> Decision:
        breaker = self.breaker
        if self._node_of is not None:
            breaker = self._breaker((*charges, *held, *shadow))
        take = partial(self.store.take, charges, held, shadow, now)
        decision = self._attempt(breaker, take, _wrote)
        return self._decide(breaker, charges, shadow, now) if decision is None else decision

    def peek(self, charges: Sequence[Charge], now: int | None = None) -> Decision:
        breaker = self._breaker(charges)
        peek = partial(self.store.peek, charges, now)
        decision = self._attempt(breaker, peek, lambda _: False)
        if decision is None:
            return self._decide(breaker, charges, (), now, peek=True)
        return decision

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        breaker = self._breaker(charges)
        self._attempt(breaker, partial(self.store.settle, charges, now), lambda _: True)

    def reset(self, client: str) -> int:
        # Somebody asked for this: pretending that it was done would be worse than an error.
        return self.store.reset(client)

    def close(self) -> None:
        self.store.close()
        self._local.close()

    def health(self) -> Health:
        """Return how the store does; of several servers, the one that is worst. Asks nobody."""
        ranks = ("ok", "recovering", "degraded")
        found = [breaker.health() for breaker in tuple(self._breakers.values())]
        return max(found, key=lambda health: ranks.index(health.state))

    def _breaker(self, charges: Sequence[Charge]) -> Breaker:
        if self._node_of is None:
            return self.breaker
        node = self._node_of(charges)
        found = self._breakers.get(node)
        if found is None:
            made = Breaker(self.breaker.interval, self._clock)
            found = self._breakers.setdefault(node, made)
        return found

    def _attempt(
        self, breaker: Breaker, call: Callable[[], Answer], wrote: Callable[[Answer], bool]
    ) -> Answer | None:
        """Return what the store says, or None if it cannot or is not to be asked now."""
        ticket = breaker.enter()
        if ticket is None:
            return None
        try:
            answer = call()
        except BucketUnreadable as error:
            self._complain(error)
            self._end(breaker.succeeded(ticket, lambda: False))
            return None
        except StoreUnavailable as error:
            if breaker.failed(ticket, str(error)):
                logger.error(
                    "The store is out of reach; until it answers, BUCKET_ON_ERROR=%r decides: %s",
                    self.policy,
                    error,
                )
                self._on_outage(str(error))
            return None
        if breaker.doubts:
            self._end(breaker.succeeded(ticket, partial(wrote, answer)))
        return answer

    def _end(self, ended: bool) -> None:
        if ended:
            logger.warning("The store answers again, and the limits hold.")
            self._on_recovery()

    def _complain(self, error: BucketUnreadable) -> None:
        """Log that one bucket cannot be read, but not with every request."""
        now = self._clock()
        if now >= self._quiet_until:
            self._quiet_until = now + QUIET
            logger.error("A bucket cannot be read, and the outage policy decided: %s", error)

    def _decide(
        self,
        breaker: Breaker,
        charges: Sequence[Charge],
        shadow: Sequence[Charge],
        now: int | None,
        peek: bool = False,
    ) -> Decision:
        if self.policy == "allow":
            return Decision(True, degraded=True)
        if self.policy == "deny":
            wait = breaker.seconds_to_next_try() or breaker.interval
            return Decision(not charges, retry_after=wait, degraded=True)
        mine, dry = self._share(charges), self._share(shadow)
        local = self._local.peek(mine, now) if peek else self._local.take(mine, (), dry, now)
        return Decision(local.allowed, local.outcomes, local.retry_after, local.now, degraded=True)

    def _share(self, charges: Sequence[Charge]) -> list[Charge]:
        return [Charge(self._scaled(c.limit), c.key, c.cost) for c in charges]


def _wrote(decision: Decision) -> bool:
    """Return whether a decision took tokens: then the store can be written to."""
    return decision.allowed and any(o.allowed and o.cost for o in decision.outcomes)


def share_of(limit: Limit, share: Fraction) -> Limit:
    """Return what one worker grants of a limit, or a little less if that cannot be counted."""
    try:
        return limit.scaled(share)
    except ConfigError:
        # Not in the middle of a request. The time to fill is the same for every share of it.
        capacity = max(1, int(limit.capacity * share))
        return Limit(capacity, capacity, ceil(limit.capacity / limit.rate), limit.name)


def health_of(store: Store) -> Health:
    """Return how a store does, whatever is wrapped around it."""
    while not isinstance(store, OutageStore):
        inner: Store | None = getattr(store, "store", None)
        if inner is None:
            return Health()
        store = inner
    return store.health()
