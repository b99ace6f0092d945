"""A store that fails when told to, and a clock that is moved by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from flask_bucket.decisions import Charge, Decision
from flask_bucket.limits import Limit
from flask_bucket.stores.memory import MemoryStore
from flask_bucket.stores.outage import OutageStore

LIMIT = Limit.parse("10/day")
CHARGE = Charge(LIMIT, "bucket:{alice}:page:per-day")


#: Of any time, in microseconds.
DAY = 86_400_000_000


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Fickle(MemoryStore):
    """A store that fails when told to, and counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.asked = 0
        self.settle_calls: list[Sequence[Charge]] = []

    def take(self, *arguments: Any, **more: Any) -> Decision:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return super().take(*arguments, **more)

    def peek(self, charges: Sequence[Charge], now: int | None = None) -> Decision:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return super().peek(charges, now)

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        self.settle_calls.append(charges)
        self.asked += 1
        if self.error is not None:
            raise self.error
        super().settle(charges, now)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fickle() -> Fickle:
    return Fickle()


@pytest.fixture
def store(fickle: Fickle, clock: Clock) -> OutageStore:
    return OutageStore(fickle, clock=clock)
