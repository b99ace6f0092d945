"""RefusalStore: a client that must wait anyway is refused without asking the store again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import floor
from threading import Lock

from cachetools import LRUCache

from ..decisions import Charge, Decision, Outcome
from ..limits import SECOND, Limit
from .base import Store

#: Seconds for which a refusal is repeated at most: after that, what other processes gave back,
#: reset or changed is seen.
AT_ONCE = 1.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a store said about one bucket, and when."""

    limit: Limit
    cost: int
    outcome: Outcome
    #: Microseconds on the store's clock.
    now: int
    #: When the call was sent and when it was answered, on this process's clock. The store
    #: decided somewhere in between: the one is early enough to go on refusing by, the other
    #: late enough to tell a client when to come back.
    sent: float
    answered: float

    def holds(self, charge: Charge, clock: float) -> bool:
        """Return whether the bucket cannot have come to afford a charge."""
        wait = self.outcome.retry_after
        until = AT_ONCE if wait is None else min(wait, AT_ONCE)
        same = charge.limit is self.limit or charge.limit == self.limit
        return same and charge.cost >= self.cost and clock < self.sent + until

    def repeated(self, charge: Charge, clock: float) -> Outcome:
        """Say what the store would say by now."""
        elapsed = clock - self.answered
        limit, cost, wait = charge.limit, charge.cost, self.outcome.retry_after
        remaining = self.outcome.remaining
        if cost > limit.capacity:
            wait = None
        elif wait is not None:
            per_second = limit.step * SECOND / (limit.scale * limit.tick)
            wait -= elapsed
            if cost > self.cost:
                # The part of a tick is not known any more: rather a tick late than early.
                wait += (cost - self.cost) / per_second + limit.tick / SECOND
            refilled = floor(cost - wait * per_second + 1e-9)
            remaining = max(remaining, min(refilled, cost - 1))
        reset_after = max(0.0, self.outcome.reset_after - elapsed)
        return Outcome(limit, charge.key, cost, False, remaining, wait, reset_after)


class RefusalStore:
    """Stands before another store and remembers its refusals, each until the wait is over.

    It refuses nothing that the store would allow, except that for one second it may not know
    of tokens that another process gave back. Charges whose tokens return as a rule are never
    remembered, nor is anything decided at a time that was passed in.

    :param entries: how many buckets are remembered; those refused longest ago are forgotten.
    :param clock: seconds, monotonic.
    """

    def __init__(
        self, store: Store, entries: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.store = store
        self._refusals: LRUCache[str, Refusal] = LRUCache(entries)
        self._clock = clock
        self._lock = Lock()
        #: Counts what was given back, so that a refusal decided before is not noted after.
        self._returns = 0

    def take(
        self,
        charges: Sequence[Charge],
        held: Sequence[Charge] = (),
        shadow: Sequence[Charge] = (),
        now: int | None = None,
    ) -> Decision:
        if now is not None:
            return self.store.take(charges, held, shadow, now)
        if self._refusals and (decision := self._repeat(charges)) is not None:
            if held:
                self.settle([Charge(c.limit, c.key, -c.cost) for c in held])
            return decision
        returns, sent = self._returns, self._clock()
        decision = self.store.take(charges, held, shadow)
        if decision.allowed:
            if self._refusals:
                self._forget((*charges, *shadow), returned=False)  # they have less than before
        else:
            if not decision.degraded:
                self._remember(charges, decision, returns, sent)
            if held:
                self._forget(held, returned=True)
        return decision

    def peek(self, charges: Sequence[Charge], now: int | None = None) -> Decision:
        return self.store.peek(charges, now)

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        try:
            self.store.settle(charges, now)
        finally:
            self._forget(charges, returned=True)

    def reset(self, client: str) -> int:
        try:
            return self.store.reset(client)
        finally:
            with self._lock:
                self._returns += 1
                self._refusals.clear()

    def close(self) -> None:
        self.store.close()

    def _repeat(self, charges: Sequence[Charge]) -> Decision | None:
        """Return the refusal that still holds for any of the charges, or None."""
        clock = self._clock()
        outcomes, at = [], 0
        with self._lock:
            for charge in charges:
                refusal = self._refusals.get(charge.key)
                if refusal is not None and refusal.holds(charge, clock):
                    outcomes.append(refusal.repeated(charge, clock))
                    at = max(at, refusal.now + int((clock - refusal.answered) * SECOND))
        if not outcomes:
            return None
        return Decision.of(tuple(outcomes), at, cached=True)

    def _remember(
        self, charges: Sequence[Charge], decision: Decision, returns: int, sent: float
    ) -> None:
        answered = self._clock()
        keys = [charge.key for charge in charges]
        with self._lock:
            if returns != self._returns:
                return
            for charge, outcome in zip(charges, decision.outcomes, strict=False):
                # Twice in one call, a bucket was asked for the sum: that says less of the part.
                if not outcome.allowed and not charge.returns and keys.count(charge.key) == 1:
                    self._refusals[charge.key] = Refusal(
                        charge.limit, charge.cost, outcome, decision.now, sent, answered
                    )

    def _forget(self, charges: Iterable[Charge], *, returned: bool) -> None:
        """Forget what was known of these buckets; if tokens returned, also what is on its way."""
        with self._lock:
            self._returns += returned
            for charge in charges:
                self._refusals.pop(charge.key, None)
