"""Stores that measure: one counts decisions, and one times the store that decides.

They wrap the stores of an application that is set up: the counting one stands before all others
and sees what the refusal cache and the outage policy decided, the timing one directly before the
store that keeps the buckets.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from flask import Flask, has_request_context, request

from ..applications import enforcers_of
from ..decisions import Charge, Decision, Outcome
from ..limits import Limit
from ..signals import store_recovered, store_unavailable
from ..stores.base import Store, WrappingStore, layers
from ..stores.leases import LeaseStore

#: Below this share of its capacity, a bucket is near its limit.
NEAR = 0.2

#: How many limits are told apart: functions may return limits with new names all the time.
MOST_LIMITS = 200

#: The limits beyond.
OTHER = "other"


class Instruments(Protocol):
    """Where measurements go. No argument says who a client is."""

    def decided(self, limiter: str, limit: str, endpoint: str, outcome: str) -> None:
        """Count a charge: allowed, refused, shadow-refused, refused-from-cache or degraded; of a
        ban, banned, shadow-banned or banned-from-cache."""

    def banned(self, limiter: str, ban: str, endpoint: str, bans: int) -> None:
        """Count bans that began. With 0, there is a counter from then on."""

    def near_limit(self, limiter: str, limit: str, endpoint: str) -> None:
        """Count an allowed charge that left less than 20% of the bucket."""

    def timed(self, limiter: str, operation: str, seconds: float) -> None:
        """Note how long the store took, also if it failed."""

    def leased(self, limiter: str, limit: str, what: str, tokens: int) -> None:
        """Count tokens of leases: leased from the store, spent, or returned to the store."""

    def slots(self, limiter: str, limit: str, change: int) -> None:
        """Note slots that requests of this process hold, or, below zero, have given back."""

    def breaker(self, limiter: str, is_open: bool) -> None:
        """Note whether the store is taken to be out of reach."""


def measure(app: Flask, instruments: Instruments) -> None:
    """Measure every Limiter that an application has by now.

    :raises ConfigError: if it has none.
    """
    for name, state in enforcers_of(app).items():
        state.store = _instrumented(state.store, instruments, name)
        instruments.breaker(name, False)

    def unavailable(sender: Flask, limiter: object, **_: object) -> None:
        instruments.breaker(getattr(limiter, "name", ""), True)

    def recovered(sender: Flask, limiter: object, **_: object) -> None:
        instruments.breaker(getattr(limiter, "name", ""), False)

    store_unavailable.connect(unavailable, app, weak=False)
    store_recovered.connect(recovered, app, weak=False)


def _instrumented(store: Store, instruments: Instruments, limiter: str) -> Store:
    """Return a store with its decisions counted, and the calls of the innermost one timed."""
    counting = CountingStore(store, instruments, limiter)
    *_, around = (layer for layer in layers(counting) if isinstance(layer, WrappingStore))
    around.store = TimingStore(around.store, instruments, limiter)
    for layer in layers(counting):
        if isinstance(layer, LeaseStore):
            layer.note = counting.count_tokens
    return counting


class TimingStore(WrappingStore):
    """Times each call of the store that it wraps."""

    def __init__(self, store: Store, instruments: Instruments, limiter: str) -> None:
        super().__init__(store)
        self._instruments, self._limiter = instruments, limiter

    def take(
        self,
        charges: Sequence[Charge],
        held: Sequence[Charge] = (),
        shadow: Sequence[Charge] = (),
        now: int | None = None,
    ) -> Decision:
        with self._timing("take"):
            return self.store.take(charges, held, shadow, now)

    def peek(self, charges: Sequence[Charge], now: int | None = None) -> Decision:
        with self._timing("peek"):
            return self.store.peek(charges, now)

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        with self._timing("settle"):
            self.store.settle(charges, now)

    def reset(self, client: str | None = None, key_prefix: str | None = None) -> int:
        with self._timing("reset"):
            return self.store.reset(client, key_prefix)

    @contextmanager
    def _timing(self, operation: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._instruments.timed(self._limiter, operation, time.perf_counter() - start)


class CountingStore(WrappingStore):
    """Counts what the store that it wraps decides when it is charged."""

    def __init__(self, store: Store, instruments: Instruments, limiter: str) -> None:
        super().__init__(store)
        self._instruments, self._limiter = instruments, limiter
        self._limits: set[str] = set()
        #: The bans that have a counter, each with its endpoint.
        self._bans: set[tuple[str, str]] = set()
        #: The slots that requests of this process hold: their keys, and the holders.
        self._held: set[tuple[str, str]] = set()

    def take(
        self,
        charges: Sequence[Charge],
        held: Sequence[Charge] = (),
        shadow: Sequence[Charge] = (),
        now: int | None = None,
    ) -> Decision:
        decision = self.store.take(charges, held, shadow, now)
        endpoint = (request.endpoint if has_request_context() else None) or ""
        if decision.degraded:
            for charge in (*charges, *shadow):
                if charge.kind != "ban":
                    self._count(charge.limit, endpoint, "degraded")
        else:
            for outcome in decision.outcomes:
                if outcome.kind == "ban":
                    self._count_ban(decision, outcome, endpoint)
                else:
                    self._count_outcome(decision, outcome, endpoint)
            if decision.allowed:
                self._count_held((*charges, *shadow), decision.outcomes)
            else:
                self._count_freed(held)
        return decision

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        self._count_freed([charge for charge in charges if charge.cost < 0])
        self.store.settle(charges, now)

    def _count_outcome(self, decision: Decision, outcome: Outcome, endpoint: str) -> None:
        if not outcome.allowed:
            refused = "refused-from-cache" if decision.cached else "refused"
            self._count(outcome.limit, endpoint, "shadow-refused" if outcome.shadow else refused)
        elif decision.allowed:  # or nothing was taken, although there was enough
            self._count(outcome.limit, endpoint, "allowed")
            if outcome.kind == "rate" and outcome.remaining < NEAR * outcome.limit.capacity:
                self._instruments.near_limit(self._limiter, self._label(outcome.limit), endpoint)

    def _count_ban(self, decision: Decision, outcome: Outcome, endpoint: str) -> None:
        """Count a ban that refused, or that began with the refusal. Others are not counted."""
        begins = not outcome.allowed and bool(outcome.taken)
        if not outcome.shadow:
            self._count_begun(self._label(outcome.limit), endpoint, int(begins))
        if begins:
            return
        if not outcome.allowed:
            banned = "banned-from-cache" if decision.cached else "banned"
            self._count(outcome.limit, endpoint, "shadow-banned" if outcome.shadow else banned)

    def _count_begun(self, ban: str, endpoint: str, bans: int) -> None:
        """Count bans that begin. If a counter started at 1, Prometheus would miss the first."""
        if (ban, endpoint) not in self._bans:
            self._bans.add((ban, endpoint))
            self._instruments.banned(self._limiter, ban, endpoint, 0)
        if bans:
            self._instruments.banned(self._limiter, ban, endpoint, bans)

    def _count_held(self, charges: Iterable[Charge], outcomes: Iterable[Outcome]) -> None:
        for charge, outcome in zip(charges, outcomes, strict=False):
            if outcome.kind == "slot" and outcome.taken:
                self._held.add((charge.key, charge.member))
                self._instruments.slots(self._limiter, self._label(charge.limit), 1)

    def _count_freed(self, charges: Iterable[Charge]) -> None:
        for charge in charges:
            if charge.kind == "slot" and (charge.key, charge.member) in self._held:
                self._held.discard((charge.key, charge.member))
                self._instruments.slots(self._limiter, self._label(charge.limit), -1)

    def count_tokens(self, limit: Limit, what: str, tokens: int) -> None:
        """Count tokens of leases."""
        if tokens:
            self._instruments.leased(self._limiter, self._label(limit), what, tokens)

    def _count(self, limit: Limit, endpoint: str, outcome: str) -> None:
        self._instruments.decided(self._limiter, self._label(limit), endpoint, outcome)

    def _label(self, limit: Limit) -> str:
        if limit.name in self._limits:
            return limit.name
        if len(self._limits) >= MOST_LIMITS:
            return OTHER
        self._limits.add(limit.name)
        return limit.name
