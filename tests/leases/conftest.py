"""A lease on a clock that is moved by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from flask_bucket import Charge, Decision, Limit, MemoryStore, StoreUnavailable
from flask_bucket.stores.base import WrappingStore
from flask_bucket.stores.leases import LeaseStore

SECOND = 1_000_000
LEASE = 0.1
#: A worker of two may hold 100 of its tokens.
HOT = Limit.parse("1000/second burst 800")
KEY, OTHER = "bucket:{all}:@application:per-second", "bucket:{c}:page:per-minute"


class Watched(WrappingStore):
    """A store that notes what it is asked, and may be out of reach or lose its answers."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.takes: list[Sequence[Charge]] = []
        self.held: list[Sequence[Charge]] = []
        self.settled: list[Charge] = []
        self.loses_answers = False
        self.is_degraded = False

    def take(
        self, charges: Sequence[Charge], held: Sequence[Charge] = (), *more: Any, **named: Any
    ) -> Decision:
        self.takes.append(charges)
        self.held.append(held)
        if self.is_degraded:
            return Decision(True, degraded=True)
        decision = super().take(charges, held, *more, **named)
        if self.loses_answers:
            raise StoreUnavailable("no reply in time")
        return decision

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        self.settled += charges
        super().settle(charges, now)


class World:
    """Workers with leases of one store, on one clock."""

    def __init__(self, workers: int = 2) -> None:
        self.now = 1_000_000 * SECOND
        self.memory = MemoryStore(lambda: self.now)
        self.store = Watched(self.memory)
        self.notes: Counter[str] = Counter()
        self.workers = [self.worker(workers) for _ in range(workers)]

    def worker(self, workers: int | None) -> LeaseStore:
        made = LeaseStore(self.store, workers, lambda: self.now / SECOND)
        made.note = lambda limit, what, tokens: self.notes.update({what: tokens})
        return made

    def take(self, *charges: Charge, worker: int = 0, **more: Any) -> Decision:
        return self.workers[worker].take(charges, **more)

    def wait(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)

    def warm(self, requests: int = 20, worker: int = 0) -> None:
        """Let a worker send so many requests, and begin a lease with the next one."""
        for _ in range(requests):
            assert self.take(hot(), worker=worker)

    def in_bucket(self) -> int:
        return self.memory.peek([Charge(HOT, KEY, 0)]).outcomes[0].remaining


def hot(cost: int = 1, **more: Any) -> Charge:
    return Charge(HOT, KEY, cost, **{"lease": LEASE, **more})


@pytest.fixture
def world() -> World:
    return World()


BAN = "bucket:{c}:@limiter:!ban"


def ban() -> Charge:
    return Charge(Limit.parse("1/hour"), BAN, 0, kind="ban", lasts=SECOND)
