"""OutageStore: what happens to requests while the store behind it is out of reach."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from threading import Lock
from typing import Literal, TypeVar

from ..decisions import Charge, Decision
from ..errors import BucketUnreadable, StoreUnavailable
from .base import Store
from .memory import MemoryStore

Policy = Literal["allow", "deny", "local"]

Answer = TypeVar("Answer")

logger = logging.getLogger("flask_bucket")


class Breaker:
    """Says when a store that fails is to be tried: once in every interval, by one request.

    Thread-safe, and never locked during a call: those who need not try do not wait.

    :param interval: seconds between tries.
    :param clock: seconds, monotonic.
    """

    def __init__(self, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.interval = interval
        self._clock = clock
        self._lock = Lock()
        self._next_try: float | None = None
        #: Counts the changes, so that a call that began before one cannot make another.
        self._changes = 0

    @property
    def is_open(self) -> bool:
        """Whether the store is taken to be out of reach."""
        return self._next_try is not None

    def seconds_to_next_try(self) -> float:
        """Return the seconds until the store is tried again; 0.0 while it is well."""
        next_try = self._next_try
        return 0.0 if next_try is None else max(0.0, next_try - self._clock())

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

    def succeeded(self, ticket: int) -> bool:
        """Note that a call went well; return whether that ends an outage."""
        if self._next_try is None:
            return False
        with self._lock:
            if self._next_try is None or ticket != self._changes:
                return False
            self._next_try, self._changes = None, self._changes + 1
            return True

    def failed(self, ticket: int) -> bool:
        """Note that a call failed; return whether that begins an outage."""
        with self._lock:
            if ticket != self._changes:
                return False
            began = self._next_try is None
            self._next_try = self._clock() + self.interval
            self._changes += began
            return began


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
        self._on_outage = on_outage
        self._on_recovery = on_recovery
        self._local = MemoryStore()
        # Limits made by callables are without number, so those scaled are kept bounded.
        self._scaled = lru_cache(maxsize=1000)(lambda limit: limit.scaled(local_share))

    def take(
        self,
        charges: Sequence[Charge],
        held: Sequence[Charge] = (),
        shadow: Sequence[Charge] = (),
        now: int | None = None,
    ) -> Decision:
        decision = self._attempt(lambda: self.store.take(charges, held, shadow, now))
        return self._decide(charges, shadow, now) if decision is None else decision

    def peek(self, charges: Sequence[Charge], now: int | None = None) -> Decision:
        decision = self._attempt(lambda: self.store.peek(charges, now))
        return self._decide(charges, (), now, peek=True) if decision is None else decision

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        self._attempt(lambda: self.store.settle(charges, now))

    def reset(self, client: str) -> int:
        # Somebody asked for this: pretending that it was done would be worse than an error.
        return self.store.reset(client)

    def close(self) -> None:
        self.store.close()
        self._local.close()

    def _attempt(self, call: Callable[[], Answer]) -> Answer | None:
        """Return what the store says, or None if it cannot or is not to be asked now."""
        ticket = self.breaker.enter()
        if ticket is None:
            return None
        try:
            answer = call()
        except BucketUnreadable as error:
            logger.error("A bucket cannot be read, and the outage policy decided: %s", error)
            self._end(ticket)
            return None
        except StoreUnavailable as error:
            if self.breaker.failed(ticket):
                logger.error(
                    "The store is out of reach; until it answers, BUCKET_ON_ERROR=%r decides: %s",
                    self.policy,
                    error,
                )
                self._on_outage(str(error))
            return None
        self._end(ticket)
        return answer

    def _end(self, ticket: int) -> None:
        if self.breaker.succeeded(ticket):
            logger.warning("The store answers again, and the limits hold.")
            self._on_recovery()

    def _decide(
        self,
        charges: Sequence[Charge],
        shadow: Sequence[Charge],
        now: int | None,
        peek: bool = False,
    ) -> Decision:
        if self.policy == "allow":
            return Decision(True, degraded=True)
        if self.policy == "deny":
            wait = self.breaker.seconds_to_next_try() or self.breaker.interval
            return Decision(not charges, retry_after=wait, degraded=True)
        mine, dry = self._share(charges), self._share(shadow)
        local = self._local.peek(mine, now) if peek else self._local.take(mine, (), dry, now)
        return Decision(local.allowed, local.outcomes, local.retry_after, local.now, degraded=True)

    def _share(self, charges: Sequence[Charge]) -> list[Charge]:
        return [Charge(self._scaled(c.limit), c.key, c.cost) for c in charges]
