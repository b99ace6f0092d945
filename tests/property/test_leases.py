"""The promises of leases, compared with exact rationals, over workers that idle, fail and die."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flask_bucket import Charge, Decision, Limit, MemoryStore, StoreUnavailable
from flask_bucket.stores.base import WrappingStore
from flask_bucket.stores.lease import PART
from flask_bucket.stores.leases import LeaseStore
from tests.conftest import START
from tests.property.oracle import MICROSECONDS, Oracle
from tests.property.profiles import examples

KEY, OTHER = "bucket:{all}:app:n", "bucket:{c}:page:n"


class Unreliable(WrappingStore):
    """A store that loses answers when told to, before it decided or after."""

    lost: str | None = None

    def take(self, *arguments: Any, **more: Any) -> Decision:
        lost, self.lost = self.lost, None
        if lost == "before":
            raise StoreUnavailable("lost")
        decision = super().take(*arguments, **more)
        if lost == "after":
            raise StoreUnavailable("lost")
        return decision


@dataclass
class Fleet:
    """Workers with leases of one bucket, and what they granted."""

    limit: Limit
    seconds: float
    count: int
    #: The store's clock, and that of all processes, in microseconds.
    now: int = START
    elapsed: int = 0
    granted: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.memory = MemoryStore(lambda: self.now)
        self.memory.close = lambda: None  # type: ignore[method-assign]  # another worker closed it
        self.store = Unreliable(self.memory)
        self.workers = [self.worker() for _ in range(self.count)]

    def worker(self) -> LeaseStore:
        return LeaseStore(self.store, self.count, lambda: self.elapsed / MICROSECONDS)

    def wait(self, microseconds: int, stepped: int = 0) -> None:
        """Let time pass. The store's clock may run faster or slower."""
        self.elapsed += microseconds
        self.now += max(0, microseconds + stepped)

    def step(self, microseconds: int) -> None:
        """Let the store's clock jump."""
        self.wait(0, microseconds)

    def die(self, worker: int) -> None:
        """Let another process take a worker's place."""
        self.workers[worker % self.count] = self.worker()

    def close(self, worker: int) -> None:
        self.workers[worker % self.count].close()

    def lose(self, answer: str) -> None:
        self.store.lost = answer

    def change(self, limit: Limit) -> None:
        self.limit = limit

    def take_often(self, worker: int, cost: int, times: int) -> None:
        for _ in range(times):
            self.take(worker, cost)

    def be_refused_elsewhere(self, worker: int, cost: int) -> None:
        never = Charge(Limit.parse("1/hour"), OTHER, 2)
        decision = self.take(worker, cost, never)
        assert decision is None or not decision.allowed

    def take(self, worker: int, cost: int, *others: Charge) -> Decision | None:
        charge = Charge(self.limit, KEY, cost, lease=self.seconds)
        try:
            decision = self.workers[worker % self.count].take([charge, *others])
        except StoreUnavailable:
            return None
        if decision.allowed:
            self.granted.append((self.now, cost))
        return decision

    @property
    def held_at_most(self) -> int:
        return self.limit.capacity // PART


def most_granted(
    granted: Sequence[tuple[int, int]], capacity: int, rate: Fraction, held: int
) -> None:
    """Check every interval: no more than the capacity, the refill, and what workers may hold.

    One exact bucket, for all workers together, must always have what they ask for.
    """
    oracle = Oracle(capacity + held, rate / MICROSECONDS, granted[0][0] if granted else START)
    for at, cost in granted:
        oracle.move(at)
        oracle.level -= cost
        assert oracle.level >= 0, (at, cost, oracle.level)


LIMITS = st.sampled_from(
    [
        Limit.parse("1000/second burst 80"),
        Limit.parse("1000/second burst 40"),
        Limit.parse("70/second burst 333"),
        Limit.parse("61/second burst 24"),
        Limit.parse("5000/second"),
    ]
)
LEASES = st.sampled_from([0.1, 0.07, 1.0, 10.0])
WAITS = st.sampled_from([0, 1, 500, 1_000, 10_000, 99_999, 100_000, 700_000, 2_000_000, 11_000_000])
WORKER = st.integers(0, 3)
STEPS = st.one_of(
    st.tuples(st.just("take_often"), WORKER, st.integers(0, 5), st.integers(1, 40)),
    st.tuples(st.just("take"), WORKER, st.integers(0, 90)),
    st.tuples(st.just("be_refused_elsewhere"), WORKER, st.integers(0, 5)),
    st.tuples(st.just("wait"), WAITS),
    st.tuples(st.just("wait"), WAITS),
    st.tuples(st.just("step"), st.sampled_from([-2_000_000, -300, 300, 2_000_000])),
    st.tuples(st.just("die"), WORKER),
    st.tuples(st.just("close"), WORKER),
    st.tuples(st.just("lose"), st.sampled_from(["before", "after"])),
    st.tuples(st.just("change"), LIMITS),
)


def run(fleet: Fleet, steps: Sequence[tuple[Any, ...]], *, leave_out: Sequence[str] = ()) -> None:
    for name, *values in steps:
        if name not in leave_out:
            getattr(fleet, name)(*values)


@examples(150, 3_000)
@given(LIMITS, LEASES, st.integers(1, 4), st.lists(STEPS, max_size=60))
def test_no_interval_is_granted_more_than_capacity_refill_and_what_is_held(
    limit: Limit, seconds: float, workers: int, steps: list[Any]
) -> None:
    fleet = Fleet(limit, seconds, workers)
    run(fleet, steps, leave_out=["change"])
    most_granted(fleet.granted, limit.capacity, limit.rate, fleet.held_at_most)


@examples(150, 3_000)
@given(LIMITS, LEASES, st.integers(1, 4), st.lists(STEPS, max_size=60))
def test_a_changed_limit_grants_no_more_than_the_larger_one(
    limit: Limit, seconds: float, workers: int, steps: list[Any]
) -> None:
    fleet = Fleet(limit, seconds, workers)
    run(fleet, steps)
    used = [limit, *(step[1] for step in steps if step[0] == "change")]
    capacity, rate = max(x.capacity for x in used), max(x.rate for x in used)
    most_granted(fleet.granted, capacity, rate, capacity // PART)


@examples(150, 3_000)
@given(LIMITS, st.integers(1, 4), st.lists(STEPS, max_size=60))
def test_no_worker_ever_holds_more_than_its_share(
    limit: Limit, workers: int, steps: list[Any]
) -> None:
    fleet = Fleet(limit, 0.1, workers)
    for step in steps:
        run(fleet, [step], leave_out=["change"])
        for worker in fleet.workers:
            (seen,) = worker.peek([Charge(limit, KEY, 0)]).outcomes
            (kept,) = fleet.memory.peek([Charge(limit, KEY, 0)]).outcomes
            assert seen.remaining - kept.remaining <= limit.capacity // (PART * workers)


@examples(100, 2_000)
@given(LIMITS, LEASES, st.lists(STEPS, max_size=40), st.integers(1, 5))
def test_a_client_that_waits_and_is_alone_is_allowed(
    limit: Limit, seconds: float, steps: list[Any], cost: int
) -> None:
    fleet = Fleet(limit, seconds, 1)
    run(fleet, steps, leave_out=["step", "lose", "die", "close", "change"])
    decision = fleet.take(0, cost)
    assert decision is not None
    if not decision:
        assert decision.retry_after is not None
        fleet.wait(-(-round(decision.retry_after * MICROSECONDS * 1000) // 1000))
        assert fleet.take(0, cost)


@pytest.mark.parametrize("offered", [0.5, 1.2, 2.0])
@pytest.mark.parametrize("workers", [1, 4, 8])
def test_over_a_long_time_nothing_is_lost(workers: int, offered: float) -> None:
    limit = Limit.parse("2000/second")
    fleet, arrivals, ideal = Fleet(limit, 0.1, workers), random.Random(7), 0
    oracle = Oracle(limit.capacity, limit.rate / MICROSECONDS, fleet.now)
    calls, requests = 0, 0
    while fleet.elapsed < 3 * MICROSECONDS:
        fleet.wait(1 + round(arrivals.expovariate(offered * 2000) * MICROSECONDS))
        oracle.move(fleet.now)
        if oracle.level >= 1:
            oracle.level -= 1
            ideal += 1
        decision = fleet.take(arrivals.randrange(workers), 1)
        assert decision is not None
        requests += 1
        calls += not (decision.leased or decision.cached)
    most_granted(fleet.granted, limit.capacity, limit.rate, fleet.held_at_most)
    waiting = limit.rate * Fraction(1, 10)  # in the bucket, for whoever asks next
    assert len(fleet.granted) >= 0.99 * ideal - waiting
    assert calls <= 0.12 * requests
