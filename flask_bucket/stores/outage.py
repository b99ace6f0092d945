"""OutageStore: decides while a store is out of reach."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache, partial
from math import ceil
from typing import Literal

from ..decisions import Charge, Decision
from ..errors import ConfigError
from ..limits import EXACT, Limit
from .attempts import Attempts, Breakers
from .base import Store, WrappingStore, layers
from .breaker import Health
from .levels import Levels
from .memory import MemoryStore

Policy = Literal["allow", "deny", "local"]

#: How many slots of each server are kept to be given back after an outage. Any others stay held
#: until their time is over.
OWED = 1000


class OutageStore(WrappingStore):
    """Wraps a store, and decides while that one cannot.

    :param policy: ``"allow"`` lets every request pass; ``"deny"`` refuses every one;
        ``"local"`` counts in this process, each limit scaled by `local_share`. What it takes is
        given back in this process too. A bucket begins with its share of what the store last
        said of it, or full.
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
        super().__init__(store)
        self.policy = policy
        node_of = getattr(store, "node_of", None)
        self._attempts = Attempts(node_of, policy, recovery_interval, on_outage, on_recovery, clock)
        self._local = MemoryStore()
        #: Charges that give slots back, which the store has not heard of.
        self._owed: dict[Breakers, deque[Charge]] = {}
        self._levels = Levels(clock=clock) if policy == "local" else None
        # Functions may return new limits all the time, so only the latest scaled ones are kept.
        share = Fraction(str(local_share)).limit_denominator(1_000_000)  # 0.333... is a third
        self._scaled = lru_cache(maxsize=1000)(partial(share_of, share=share))

    def take(
        self,
        charges: Sequence[Charge],
        held: Sequence[Charge] = (),
        shadow: Sequence[Charge] = (),
        now: int | None = None,
    ) -> Decision:
        local: Sequence[Charge] = ()
        if held:
            held, local = _parted(held)
        breakers = self._attempts.breakers((*charges, *held, *shadow))
        if self._owed:
            self._give_back_slots(breakers)
        take = partial(self.store.take, charges, held, shadow, now)
        decision = self._attempts.make(breakers, take, _wrote)
        if decision is None:
            bans = [charge for charge in held if charge.kind == "ban"]
            return self._decide(breakers, charges, [*local, *bans], shadow, now)
        if self._levels is not None:
            self._levels.note(decision.outcomes)
            if held and not decision.allowed:
                self._levels.settle(charge.given_back() for charge in held)
        if local and not decision.allowed:
            self._local.settle(self._share(c.given_back() for c in local), now)
        return decision

    def peek(self, charges: Sequence[Charge], now: int | None = None) -> Decision:
        breakers = self._attempts.breakers(charges)
        peek = partial(self.store.peek, charges, now)
        decision = self._attempts.make(breakers, peek, lambda _: False)
        if decision is None:
            return self._decide(breakers, charges, (), (), now, peek=True)
        return decision

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        charges, local = _parted(charges)
        if local:
            self._local.settle(self._share(local), now)
        if charges:
            self._settle(self._attempts.breakers(charges), charges, now)
            if self._levels is not None:
                self._levels.settle(charges)

    def reset(self, client: str | None = None, key_prefix: str | None = None) -> int:
        # This is not guarded: its caller must hear that nothing was forgotten.
        if self._levels is not None:
            self._levels.clear()
        return self.store.reset(client, key_prefix)

    def close(self) -> None:
        self.store.close()
        self._local.close()

    def health(self) -> Health:
        """Return the health of the store, without a call; of several servers, the worst."""
        return self._attempts.health()

    def _settle(self, breakers: Breakers, charges: Sequence[Charge], now: int | None) -> None:
        """Settle what the store has taken, or remember the slots to give back later."""

        def settle() -> bool:
            self.store.settle(charges, now)
            return True

        def wrote(_: bool) -> bool:
            # Giving back a slot that nobody holds any more writes nothing.
            return any(charge.kind != "slot" for charge in charges)

        settled = self._attempts.make(breakers, settle, wrote)
        if settled or now is not None or not any(breaker.doubts for breaker in breakers):
            return
        if slots := [charge for charge in charges if charge.kind == "slot"]:
            self._owed.setdefault(breakers, deque(maxlen=OWED)).extend(slots)

    def _give_back_slots(self, breakers: Breakers) -> None:
        """Give back the slots whose giving back failed, if the store may be tried."""
        is_due = self._attempts.seconds_to_next_try(breakers) == 0
        if is_due and (owed := self._owed.pop(breakers, None)):
            self._settle(breakers, tuple(owed), None)

    def _decide(
        self,
        breakers: Breakers,
        charges: Sequence[Charge],
        held: Sequence[Charge],
        shadow: Sequence[Charge],
        now: int | None,
        peek: bool = False,
    ) -> Decision:
        if self.policy == "allow":
            return Decision(True, degraded=True)
        if self.policy == "deny":
            wait = self._attempts.seconds_to_next_try(breakers) or self._attempts.interval
            return Decision(not charges, retry_after=wait, degraded=True)
        if self._levels is not None:
            self._begin_warm(self._levels, (*charges, *shadow), now)
        mine = self._share(charges)
        if peek:
            decision = self._local.peek(mine, now)
        else:
            decision = self._local.take(mine, self._share(held), self._share(shadow), now)
        outcomes = tuple(outcome._replace(taken_from="local") for outcome in decision.outcomes)
        return decision._replace(outcomes=outcomes, degraded=True)

    def _begin_warm(self, levels: Levels, charges: Iterable[Charge], now: int | None) -> None:
        """Let buckets of this process hold no more than their share of what the store last said.

        They may hold less: the store does not know what they granted in an earlier outage.
        """
        for charge in charges:
            level = levels.pop(charge)
            if level is None:
                continue
            (mine,) = self._share([replace(charge, cost=0)])
            share = round(level * mine.limit.capacity / charge.limit.capacity)
            left = self._local.peek([mine], now).outcomes[0].remaining
            if left > share:
                self._local.settle([replace(mine, cost=left - share)], now)

    def _share(self, charges: Iterable[Charge]) -> list[Charge]:
        # Nothing is taken ahead: there is no call to be saved. A ban needs all of its refusals.
        return [
            charge
            if charge.kind == "ban"
            else replace(charge, limit=self._scaled(charge.limit), up_to=None, rest=0)
            for charge in charges
        ]


def _parted(charges: Sequence[Charge]) -> tuple[Sequence[Charge], Sequence[Charge]]:
    """Return the charges of the store, and those of this process's own buckets."""
    local = [charge for charge in charges if charge.taken_from == "local"]
    return [c for c in charges if c.taken_from != "local"] if local else charges, local


def _wrote(decision: Decision) -> bool:
    """Return whether a decision took tokens, which shows that the store can be written to."""
    return decision.allowed and any(o.allowed and o.cost for o in decision.outcomes)


def share_of(limit: Limit, share: Fraction) -> Limit:
    """Return what one worker grants of a limit: less than its share if that cannot be counted."""
    try:
        return limit.scaled(share)
    except ConfigError:
        # An outage is no time for errors: round down to a limit that can always be counted.
        capacity, rate = max(1, int(limit.capacity * share)), limit.rate * share
        if rate >= 1:
            return Limit(capacity, int(rate), 1, limit.name)
        seconds = min(ceil(1 / rate), EXACT // 2)
        return Limit(min(capacity, EXACT // seconds - 1), 1, seconds, limit.name)


def health_of(store: Store) -> Health:
    """Return the health of a store, whichever stores are wrapped around it."""
    guards = (layer for layer in layers(store) if isinstance(layer, OutageStore))
    guard = next(guards, None)
    return Health() if guard is None else guard.health()
