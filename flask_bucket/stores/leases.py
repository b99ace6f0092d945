"""LeaseStore: takes tokens of hot buckets ahead, and spends them without a call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from threading import Lock

from cachetools import LRUCache

from .. import forks
from ..decisions import Charge, Decision, Outcome, given_back
from ..keys import belongs
from ..limits import Limit
from .base import Store, WrappingStore
from .lease import Lease, share_of_worker

#: How many buckets' use a process remembers. Tokens of a bucket that it forgets are lost.
ENTRIES = 10_000

#: Charges that are settled in one call when the store is closed.
AT_A_TIME = 100


#: Notes tokens of a limit: ``"leased"`` from the store, ``"spent"`` without a call, or
#: ``"returned"`` to the store.
Note = Callable[[Limit, str, int], object]


@dataclass(slots=True)
class Row:
    """One charge of a call: answered here, or asked of the store."""

    charge: Charge
    lease: Lease | None
    #: The charge as the store is asked.
    asked: Charge
    #: Its outcome, once it is known.
    outcome: Outcome | None = None


class LeaseStore(WrappingStore):
    """Wraps a store, takes tokens of hot buckets ahead, and spends them without a call.

    Of a limit with capacity C and rate r, all workers together hold at most H = C / 4 tokens. So at
    most C + r T + H tokens are granted in any T seconds, whatever happens to workers. A worker that
    dies loses what it held.

    :param workers: all workers on all machines; None if their number is not known: then nothing
        is leased.
    :param clock: seconds, monotonic.
    """

    def __init__(
        self, store: Store, workers: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(store)
        self.workers = workers
        #: Called with each number of tokens, for metrics.
        self.note: Note = lambda limit, what, tokens: None
        self._clock = clock
        self.after_fork()
        forks.watch(self)

    def after_fork(self) -> None:
        """Hold nothing: the parent spends what it took."""
        self._leases: LRUCache[str, Lease] = LRUCache(ENTRIES)
        self._lock = Lock()

    def take(
        self,
        charges: Sequence[Charge],
        held: Sequence[Charge] = (),
        shadow: Sequence[Charge] = (),
        now: int | None = None,
    ) -> Decision:
        leased = [charge for charge in held if charge.taken_from == "lease"]
        if leased:
            held = [charge for charge in held if charge.taken_from != "lease"]
        if now is None and any(charge.lease for charge in charges):
            decision = self._take(charges, held, shadow)
        else:
            decision = self.store.take(charges, held, shadow, now)
        if leased and not decision.allowed:
            self.settle([charge.given_back() for charge in leased])
        return decision

    def peek(self, charges: Sequence[Charge], now: int | None = None) -> Decision:
        """Return what the store says, and add what this process holds."""
        clock, asked, tokens = self._clock(), list(charges), dict[int, int]()
        with self._lock:
            for i, charge in enumerate(charges if now is None else ()):
                lease = self._leases.get(charge.key)
                if lease is not None and lease.limit == charge.limit and clock < lease.until:
                    tokens[i] = lease.tokens
                    asked[i] = replace(charge, cost=max(0, charge.cost - lease.tokens))
        decision = self.store.peek(asked, now)
        if not tokens or decision.degraded:
            return decision
        outcomes = [
            o.settled(-tokens.get(i, 0))._replace(cost=charge.cost)
            for i, (charge, o) in enumerate(zip(charges, decision.outcomes, strict=True))
        ]
        return Decision.of(tuple(outcomes), decision.now)

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        """Return leased tokens to their leases, as far as there is room, and settle the rest."""
        others = []
        with self._lock:
            for charge in charges:
                lease = self._leases.get(charge.key)
                if lease is not None and charge.cost < 0:
                    lease.refusal = None
                    if charge.taken_from == "lease" and lease.limit == charge.limit:
                        charge = replace(charge, cost=-lease.put_back(-charge.cost))
                if charge.cost or charge.taken_from != "lease":
                    others.append(charge)
        if others:
            self.store.settle(others, now)

    def reset(self, client: str | None = None, key_prefix: str | None = None) -> int:
        try:
            return self.store.reset(client, key_prefix)
        finally:
            with self._lock:
                for key in [k for k in self._leases if belongs(k, client, key_prefix)]:
                    del self._leases[key]  # the bucket is full without what was held

    def close(self) -> None:
        """Give back what is held."""
        with self._lock:
            rests = [(k, lease) for k, lease in self._leases.items() if lease.tokens]
            self._leases.clear()
        back = [Charge(lease.limit, key, -lease.tokens) for key, lease in rests]
        for i in range(0, len(back), AT_A_TIME):
            self.store.settle(back[i : i + AT_A_TIME])
            for charge in back[i : i + AT_A_TIME]:
                self.note(charge.limit, "returned", -charge.cost)
        self.store.close()

    # Charges of which some may be leased.

    def _take(
        self, charges: Sequence[Charge], held: Sequence[Charge], shadow: Sequence[Charge]
    ) -> Decision:
        clock = self._clock()
        with self._lock:
            rows = self._planned(charges, clock)
            refused = [row for row in rows if row.outcome is not None and not row.outcome.allowed]
            returned = _put_back(rows) if refused else []
        if refused:
            if returned := [*returned, *given_back(held)]:
                self.store.settle(returned)
            return _decision(refused, _store_time(refused, clock), cached=True)
        asking = [row for row in rows if row.outcome is None]
        if asking or shadow:
            return self._ask(charges, rows, asking, held, shadow, clock)
        self._note_spent(rows)
        return _decision(rows, _store_time(rows, clock))

    def _planned(self, charges: Sequence[Charge], clock: float) -> list[Row]:
        """Decide about each charge from what is known here, or prepare to ask about it."""
        keys = [charge.key for charge in charges]
        rows = []
        for charge in charges:
            # If one call charges a bucket twice, the store decides about the sum.
            lease = self._lease(charge) if keys.count(charge.key) == 1 else None
            row = Row(charge, lease, charge)
            if lease is not None:
                lease.note_request(clock)
                if lease.spend(charge.cost, clock):
                    row.outcome = lease.spent(charge, clock)
                else:
                    row.outcome = lease.repeated(charge, clock)
            rows.append(row)
        if any(row.outcome is not None and not row.outcome.allowed for row in rows):
            return rows
        for row in rows:
            if row.outcome is None and row.lease is not None:
                row.asked = row.lease.ask(row.charge)
        return rows

    def _lease(self, charge: Charge) -> Lease | None:
        """Return the lease of a charge's bucket; None if it is never leased."""
        if not charge.lease or charge.kind != "rate":
            return None
        lease = self._leases.get(charge.key)
        if lease is None or not lease.serves(charge):
            most = share_of_worker(charge.limit, charge.lease, self.workers)
            if not most:
                return None
            # If the limit has changed, the tokens left are given back with the next call.
            rest = 0 if lease is None else min(most, lease.tokens)
            lease = self._leases[charge.key] = Lease(charge.limit, charge.lease, most, rest)
        return lease

    def _ask(
        self,
        charges: Sequence[Charge],
        rows: Sequence[Row],
        asking: Sequence[Row],
        held: Sequence[Charge],
        shadow: Sequence[Charge],
        sent: float,
    ) -> Decision:
        """Ask the store about the charges that cannot be answered here."""
        # The charges of a request come again, and a store may have prepared a call for them.
        is_plain = all(row.asked is row.charge for row in asking) and len(asking) == len(charges)
        asked = charges if is_plain else [row.asked for row in asking]
        decision = None
        try:
            decision = self.store.take(asked, held, shadow)
        finally:
            with self._lock:
                self._note_answer(rows, asking, decision, sent)
                refused = decision is None or not decision.allowed
                returned = _put_back(rows) if refused else []
            if returned:
                self.store.settle(returned)
        if is_plain or (decision.degraded and not decision.outcomes):
            return decision
        answered = iter(decision.outcomes)
        for row in asking:
            outcome = next(answered)
            row.outcome = outcome if row.lease is None else row.lease.tell(outcome)
        told = _decision(rows, decision.now, shadow=tuple(answered))
        return told._replace(degraded=decision.degraded, cached=decision.cached)

    def _note_answer(
        self, rows: Sequence[Row], asking: Sequence[Row], decision: Decision | None, sent: float
    ) -> None:
        """Hold what a call brought."""
        answered = self._clock()
        outcomes = () if decision is None or decision.degraded else decision.outcomes
        for i, row in enumerate(asking):
            lease, asked = row.lease, row.asked
            if lease is None or asked.up_to is None:
                continue
            lease.landed(asked)
            self.note(lease.limit, "returned", asked.rest)
            if outcomes and decision is not None:
                brought = lease.note_answer(asked, outcomes[i], decision.now, sent, answered)
                self.note(lease.limit, "leased", brought)
        if decision is not None and decision.allowed:
            self._note_spent(rows)

    def _note_spent(self, rows: Iterable[Row]) -> None:
        for row in rows:
            if row.outcome is not None and row.outcome.taken_from == "lease":
                self.note(row.charge.limit, "spent", row.charge.cost)


def _put_back(rows: Iterable[Row]) -> list[Charge]:
    """Hold again what a refused request had taken from leases.

    :returns: the charges that give back the tokens for which the leases have no room.
    """
    returned = []
    for row in rows:
        if row.lease is not None and row.outcome is not None and row.outcome.allowed:
            tokens = row.lease.put_back(row.charge.cost)
            if tokens:
                returned.append(Charge(row.charge.limit, row.charge.key, -tokens))
    return returned


def _store_time(rows: Iterable[Row], clock: float) -> int:
    return max(row.lease.store_time(clock) for row in rows if row.lease is not None)


def _decision(
    rows: Sequence[Row], now: int, *, shadow: tuple[Outcome, ...] = (), cached: bool = False
) -> Decision:
    outcomes = tuple(row.outcome for row in rows if row.outcome is not None)
    leased = any(outcome.taken_from == "lease" for outcome in outcomes)
    return Decision.of((*outcomes, *shadow), now, cached=cached, leased=leased)
