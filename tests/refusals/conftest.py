"""A refusal cache around a store that counts its calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from flask_bucket import Charge, Decision, Limit, MemoryStore
from flask_bucket.stores.base import Store
from flask_bucket.stores.refusals import RefusalStore

SECOND = 1_000_000
HOURLY = Limit.parse("1/hour")


class Counting(MemoryStore):
    """An in-process store that counts what it is asked."""

    def __init__(self, clock: Any) -> None:
        super().__init__(clock)
        self.takes = self.settles = 0

    def take(self, *arguments: Any) -> Decision:
        self.takes += 1
        return super().take(*arguments)

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        self.settles += 1
        super().settle(charges, now)


class World:
    """A store wrapped in a refusal cache, on one clock that is moved by hand."""

    def __init__(self, entries: int = 100) -> None:
        self.now = 1_000_000 * SECOND
        self.store = Counting(lambda: self.now)
        self.cached = self.cache(self.store, entries)

    def cache(self, store: Store, entries: int = 10) -> RefusalStore:
        """Return a refusal cache around a store, on the same clock."""
        return RefusalStore(store, entries, lambda: self.now / SECOND)

    def take(self, *charges: Charge, held: Sequence[Charge] = ()) -> Decision:
        return self.cached.take(charges, held)

    def wait(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)


def charge(
    limit: Limit = HOURLY, key: str = "bucket:{c}:s:n", cost: int = 1, **more: Any
) -> Charge:
    return Charge(limit, key, cost, **more)


@pytest.fixture
def world() -> World:
    return World()
