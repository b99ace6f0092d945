"""RefusalStore: caches refusals, so that repeated requests are refused without a call."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import Lock

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
    #: When it ends, and when the store's answer came, in seconds on this process's clock. The store
    #: decided somewhere between call and answer. The refusal's time begins with the call, so that
    #: it never outlasts the wait. The waits that clients are told count from the answer, so that
    #: they never come back too early.
    ends: float
    answered: float
    #: When the cost can be afforded (None: never), and when the bucket is full, in microseconds on
    #: the store's clock.
    affordable_at: int | None
    full_at: int

    @classmethod
    def of(cls, outcome: Outcome, now: int, sent: float, answered: float) -> RememberedRefusal:
        """Remember what a store decided, between two times on this process's clock."""
        wait = outcome.retry_after
        ends = sent + (LONGEST if wait is None else min(wait, LONGEST))
        affordable_at = None if wait is None else now + round(wait * SECOND)
        full_at = now + round(outcome.reset_after * SECOND)
        return cls(outcome, now, ends, answered, affordable_at, full_at)

    def holds(self, charge: Charge, clock: float) -> bool:
        """Return whether the store would surely refuse a charge: the same limit and cost, soon."""
        limit, told = charge.limit, self.outcome
        same = limit is told.limit or limit == told.limit
        return same and charge.cost == told.cost and clock < self.ends

    def store_time(self, clock: float) -> int:
        """Return the microseconds on the store's clock. It may be later by now, but not earlier."""
        return self.now + round((clock - self.answered) * SECOND)

    def repeated(self, now: int) -> Outcome:
        """Return what the store would answer, at `now` on its clock."""
        told, limit, full_in = self.outcome, self.outcome.limit, max(1, self.full_at - now)
        key, cost, remaining, wait = told.key, told.cost, told.remaining, told.retry_after
        if remaining < cost - 1:
            # At most one tick's refill less than there is: the answer tells no parts of a token.
            refilled = (limit.full - -(-full_in // limit.tick) * limit.step) // limit.scale
            remaining = max(remaining, min(refilled, cost - 1))
        if self.affordable_at is not None:
            wait = max(1, self.affordable_at - now) / SECOND
        reset = full_in / SECOND
        return Outcome(limit, key, cost, False, remaining, wait, reset, False, "store", told.kind)


class RefusalStore(WrappingStore):
    """Wraps a store and remembers its refusals, each until its wait is over.

    It refuses nothing that the store would allow, except that for one second it may not know of
    tokens that another process gave back. It never remembers charges whose tokens usually return,
    nor a decision at a time that was passed in. While a ban may count refusals, the store is asked
    each time. Once the ban has begun, the ban is remembered.

    :param entries: how many buckets are remembered; the earliest refused are forgotten.
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
        self._refusals: OrderedDict[str, RememberedRefusal] = OrderedDict()
        #: Taken to change the refusals. A single one is read without it.
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
            if held and (returned := given_back(held)):
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
                lasting = not outcome.allowed and not charge.returns and charge.kind != "slot"
                # If one call charges a bucket twice, it was asked for the sum. Nothing is known
                # of the parts.
                if lasting and keys.count(charge.key) == 1:
                    refusal = RememberedRefusal.of(outcome, decision.now, sent, answered)
                    self._refusals[charge.key] = refusal
                    self._refusals.move_to_end(charge.key)
            while len(self._refusals) > self._entries:
                self._refusals.popitem(last=False)

    def _forget(self, charges: Iterable[Charge], *, returned: bool) -> None:
        """Forget these buckets' refusals; if tokens returned, those of calls under way as well."""
        with self._lock:
            self._returns += returned
            for charge in charges:
                self._refusals.pop(charge.key, None)
