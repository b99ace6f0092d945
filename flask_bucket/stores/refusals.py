"""RefusalStore: caches refusals, so that repeated requests are refused without a call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import Lock

from cachetools import LRUCache

from .. import forks
from ..decisions import Charge, Decision, Outcome, given_back
from ..limits import SECOND
from .base import Store, WrappingStore

#: Seconds for which a refusal is remembered at most. Then the store is asked again, so that
#: tokens that another process gave back, reset or changed are seen.
LONGEST = 1.0


@dataclass(frozen=True, slots=True)
class RememberedRefusal:
    """A store's answer about one bucket that could not afford a charge, and its time."""

    outcome: Outcome
    #: Microseconds on the store's clock when it decided.
    now: int
    #: When the call was sent and when it was answered, in seconds on this process's clock. The
    #: store decided somewhere in between. The refusal ends by the earlier, so that it never
    #: outlasts the wait. The waits that clients are told count from the later, so that they
    #: never come back too early.
    sent: float
    answered: float

    def holds(self, charge: Charge, clock: float) -> bool:
        """Return whether the store would surely refuse a charge: the same limit and cost, soon."""
        wait = self.outcome.retry_after
        lasts = LONGEST if wait is None else min(wait, LONGEST)
        limit = self.outcome.limit
        same = charge.limit is limit or charge.limit == limit
        return same and charge.cost == self.outcome.cost and clock < self.sent + lasts

    def store_time(self, clock: float) -> int:
        """Return the microseconds on the store's clock. It may be later by now, but not earlier."""
        return self.now + round((clock - self.answered) * SECOND)

    def repeated(self, now: int) -> Outcome:
        """Return what the store would answer, at `now` on its clock."""
        told, limit, elapsed = self.outcome, self.outcome.limit, now - self.now
        full_in, wait = _left(told.reset_after, elapsed), told.retry_after
        # At most one tick's refill less than there is: the answer does not tell parts of a token.
        refilled = (limit.full - -(-full_in // limit.tick) * limit.step) // limit.scale
        remaining = max(told.remaining, min(refilled, told.cost - 1))
        wait = None if wait is None else _left(wait, elapsed) / SECOND
        reset = full_in / SECOND
        return Outcome(limit, told.key, told.cost, False, remaining, wait, reset, kind=told.kind)


def _left(seconds: float, elapsed: int) -> int:
    """Return the microseconds that are left of some seconds, at least 1."""
    return max(1, round(seconds * SECOND) - elapsed)


class RefusalStore(WrappingStore):
    """Wraps a store and remembers its refusals, each until its wait is over.

    It refuses nothing that the store would allow, except that for one second it may not know of
    tokens that another process gave back. It never remembers charges whose tokens usually return,
    nor a decision at a time that was passed in. While a ban may count refusals, the store is asked
    each time. Once the ban has begun, the ban is remembered.

    :param entries: how many buckets are remembered; the least recently used are forgotten.
    :param clock: seconds, monotonic.
    """

    def __init__(
        self, store: Store, entries: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(store)
        self._entries = entries
        self._clock = clock
        self.after_fork()
        forks.watch(self)

    def after_fork(self) -> None:
        """Begin empty, with a new lock."""
        self._refusals: LRUCache[str, RememberedRefusal] = LRUCache(self._entries)
        self._lock = Lock()
        #: Counts the times that tokens were given back. A refusal that was decided before the
        #: latest of them is not remembered after it.
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
        if self._refusals and (decision := self._repeat(charges, held, shadow)) is not None:
            if returned := given_back(held):
                self.settle(returned)
            return decision
        returns, sent = self._returns, self._clock()
        decision = self.store.take(charges, held, shadow)
        if decision.allowed:
            if self._refusals:
                # These buckets hold less than before, so the remembered waits are too short.
                self._forget((*charges, *shadow), returned=False)
        else:
            if not decision.degraded:
                self._remember(charges, decision, returns, sent)
            if held:
                self._forget(held, returned=True)
        return decision

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        try:
            self.store.settle(charges, now)
        finally:
            self._forget(charges, returned=True)

    def reset(self, client: str | None = None, key_prefix: str | None = None) -> int:
        try:
            return self.store.reset(client, key_prefix)
        finally:
            with self._lock:
                self._returns += 1
                self._refusals.clear()

    def _repeat(
        self, charges: Sequence[Charge], held: Sequence[Charge], shadow: Sequence[Charge]
    ) -> Decision | None:
        """Return the refusal that still holds for any of the charges, or None.

        If a ban may count it, only a ban that has begun is an answer.
        """
        clock, now, refusals, counts = self._clock(), 0, [], False
        with self._lock:
            for charge in charges:
                counts = counts or charge.kind == "ban"
                refusal = self._refusals.get(charge.key)
                if refusal is not None and refusal.holds(charge, clock):
                    refusals.append(refusal)
                    now = max(now, refusal.store_time(clock))
        if not refusals:
            return None
        if held or shadow:
            counts = counts or any(charge.kind == "ban" for charge in (*held, *shadow))
        if counts and not any(refusal.outcome.kind == "ban" for refusal in refusals):
            return None
        return Decision.of(tuple([r.repeated(now) for r in refusals]), now, cached=True)

    def _remember(
        self, charges: Sequence[Charge], decision: Decision, returns: int, sent: float
    ) -> None:
        answered = self._clock()
        keys = [charge.key for charge in charges]
        with self._lock:
            if returns != self._returns:
                return
            for charge, outcome in zip(charges, decision.outcomes, strict=False):
                # If one call charges a bucket twice, it was asked for the sum. Nothing is known
                # of the parts.
                if outcome.allowed or charge.returns or charge.kind == "slot":
                    continue
                if keys.count(charge.key) == 1:
                    self._refusals[charge.key] = RememberedRefusal(
                        outcome, decision.now, sent, answered
                    )

    def _forget(self, charges: Iterable[Charge], *, returned: bool) -> None:
        """Forget these buckets' refusals; if tokens returned, those of calls under way as well."""
        with self._lock:
            self._returns += returned
            for charge in charges:
                self._refusals.pop(charge.key, None)
