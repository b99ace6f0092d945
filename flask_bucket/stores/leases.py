"""LeaseStore: takes tokens of hot buckets ahead, and spends them without a call."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from threading import Lock

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
class Asked:
    """A charge that the store is asked about, because no lease answers it."""

    #: Its place among the charges of the request.
    place: int
    #: As the store is asked.
    charge: Charge
    #: The lease that holds what the store gives ahead; None if the store is asked as ever.
    lease: Lease | None


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
        self._leases: OrderedDict[str, Lease] = OrderedDict()
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
        if now is None and [charge for charge in charges if charge.lease]:
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
        """Answer from leases what they can answer, and ask the store about the rest."""
        clock, now = self._clock(), 0
        spent: list[Outcome] = []
        refused: list[Outcome] = []
        asking: list[Asked] = []
        with self._lock:
            for place, charge in enumerate(charges):
                lease = self._lease(charge)
                outcome = None if lease is None else lease.answer(charge, clock)
                if lease is None or outcome is None:
                    asking.append(Asked(place, charge, lease))
                    continue
                now = max(now, lease.store_time(clock))
                (spent if outcome.allowed else refused).append(outcome)
            if asking and not refused:
                _take_ahead(asking)
        if refused:
            if returned := [*_returned(spent), *given_back(held)]:
                self.settle(returned)
            return Decision.of(tuple(refused), now, cached=True)
        if asking or shadow:
            return self._ask(charges, spent, asking, held, shadow, clock)
        self._note_spent(spent)
        return Decision(True, tuple(spent), 0.0, now, leased=True)

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
            if len(self._leases) > ENTRIES:
                self._leases.popitem(last=False)
        self._leases.move_to_end(charge.key)
        return lease

    def _ask(
        self,
        charges: Sequence[Charge],
        spent: list[Outcome],
        asking: Sequence[Asked],
        held: Sequence[Charge],
        shadow: Sequence[Charge],
        sent: float,
    ) -> Decision:
        """Ask the store about the charges that leases do not answer."""
        if len(asking) == len(charges) and all(asked.lease is None for asked in asking):
            # The charges of a request come again, and a store may have prepared a call for them.
            return self.store.take(charges, held, shadow)
        decision = None
        try:
            decision = self.store.take([asked.charge for asked in asking], held, shadow)
        finally:
            with self._lock:
                self._note_answer(asking, decision, sent)
            if decision is not None and decision.allowed:
                self._note_spent(spent)
            elif spent:
                self.settle(_returned(spent))
        if decision.degraded and not decision.outcomes:
            return decision
        outcomes, answered = list(spent), iter(decision.outcomes)
        for asked in asking:
            outcome = next(answered)
            outcome = outcome if asked.lease is None else asked.lease.tell(outcome)
            outcomes.insert(asked.place, outcome)
        told = Decision.of((*outcomes, *answered), decision.now, leased=bool(spent))
        return told._replace(degraded=decision.degraded, cached=decision.cached)

    def _note_answer(self, asking: Sequence[Asked], decision: Decision | None, sent: float) -> None:
        """Hold what a call brought."""
        answered = self._clock()
        outcomes = () if decision is None or decision.degraded else decision.outcomes
        for i, asked in enumerate(asking):
            charge, lease = asked.charge, asked.lease
            if lease is None:
                continue
            lease.landed(charge)
            self.note(lease.limit, "returned", charge.rest)
            if outcomes and decision is not None:
                brought = lease.note_answer(charge, outcomes[i], decision.now, sent, answered)
                self.note(lease.limit, "leased", brought)

    def _note_spent(self, spent: Sequence[Outcome]) -> None:
        for outcome in spent:
            self.note(outcome.limit, "spent", outcome.cost)


def _take_ahead(asking: Sequence[Asked]) -> None:
    """Let charges of leased buckets give back rests, and take ahead what is due."""
    keys = [asked.charge.key for asked in asking]
    for asked in asking:
        if asked.lease is not None:
            if keys.count(asked.charge.key) > 1:
                asked.lease = None  # the store decides about the sum
            else:
                asked.charge = asked.lease.ask(asked.charge)


def _returned(spent: Iterable[Outcome]) -> list[Charge]:
    """Return the charges that give tokens back to the leases that they were spent from."""
    return [Charge(o.limit, o.key, -o.cost, taken_from="lease") for o in spent]
