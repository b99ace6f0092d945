"""Levels: the last known level of each bucket, for while the store is out of reach."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from threading import Lock

from cachetools import LRUCache

from .. import forks
from ..decisions import Charge, Outcome
from ..limits import Limit

#: How many buckets are remembered: those charged last.
KEPT = 10_000


class Levels:
    """Remembers the level of each bucket, and when that was. Thread-safe.

    :param entries: how many buckets are remembered; the least recently charged are forgotten.
    :param clock: seconds, monotonic.
    """

    def __init__(self, entries: int = KEPT, clock: Callable[[], float] = time.monotonic) -> None:
        self._entries = entries
        self._clock = clock
        self.after_fork()
        forks.watch(self)

    def after_fork(self) -> None:
        """Begin empty, with a new lock."""
        #: The limit, the tokens that it had, and when.
        self._known: LRUCache[str, tuple[Limit, float, float]] = LRUCache(self._entries)
        self._lock = Lock()

    def note(self, outcomes: Iterable[Outcome]) -> None:
        """Note what a store said when it charged buckets."""
        now = self._clock()
        with self._lock:
            for outcome in outcomes:
                if outcome.kind != "rate":
                    continue  # slots do not refill
                self._known[outcome.key] = outcome.limit, outcome.remaining, now

    def settle(self, charges: Iterable[Charge]) -> None:
        """Note tokens that a store took or gave back without telling the balance."""
        now = self._clock()
        with self._lock:
            for charge in charges:
                known = self._known.get(charge.key)
                if known is not None:
                    level = min(charge.limit.capacity, _level(known, now) - charge.cost)
                    self._known[charge.key] = charge.limit, level, now

    def pop(self, charge: Charge) -> float | None:
        """Return the tokens that a bucket has by now, and forget it; None if it is not known."""
        with self._lock:
            known = self._known.pop(charge.key, None)
        return None if known is None else min(charge.limit.capacity, _level(known, self._clock()))

    def clear(self) -> None:
        """Forget all buckets."""
        with self._lock:
            self._known.clear()


def _level(known: tuple[Limit, float, float], now: float) -> float:
    """Return the level of a bucket, refilled since it was noted; below zero for a debt."""
    limit, level, since = known
    return min(limit.capacity, level + (now - since) * float(limit.rate))
