"""MemoryStore: buckets in this process, for development, tests and a single worker."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping, Sequence
from threading import Lock

from .. import bucket, forks
from ..bucket import Kept, State
from ..decisions import Charge, Decision, no_negative_cost
from ..keys import belongs
from .base import checked_now


class MemoryStore:
    """Keep buckets in memory, with the same arithmetic as the script in Redis.

    Thread-safe. Every process counts alone: with several workers, use Redis.

    :param clock: returns the time in whole microseconds. By default this is the monotonic clock,
        set by the wall clock when the store is made. Later changes of the host's time do not
        move it.

    >>> from flask_bucket import Charge, Limit
    >>> store = MemoryStore(clock=lambda: 0)
    >>> charge = Charge(Limit.parse("5/second"), "bucket:{alice}:search:per-second")
    >>> store.take([charge]).outcomes[0].remaining
    4
    """

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        self._clock = clock or _monotonic_clock()
        self._states: dict[str, Kept] = {}
        #: When each bucket expires, on this store's clock, whatever `now` a caller passes.
        self._expires: dict[str, int] = {}
        #: A heap with one entry for each bucket, due at an expiry that may have moved since. When
        #: it is due, the bucket is dropped or queued again.
        self._queue: list[tuple[int, str]] = []
        #: The keys in the queue. A reset leaves its keys there: a bucket that comes back must not
        #: be queued twice.
        self._queued: set[str] = set()
        self._lock = Lock()
        forks.watch(self)

    def take(
        self,
        charges: Sequence[Charge],
        held: Sequence[Charge] = (),
        shadow: Sequence[Charge] = (),
        now: int | None = None,
    ) -> Decision:
        everything = (*charges, *shadow, *held)
        no_negative_cost(everything)
        with self._lock:
            clock, now = self._times(now)
            states = self._read(everything)
            decision, writes = bucket.take(states, charges, now, held=held, shadow=shadow)
            self._write(writes, everything, clock, now)
        return decision

    def peek(self, charges: Sequence[Charge], now: int | None = None) -> Decision:
        no_negative_cost(charges)
        with self._lock:
            _, now = self._times(now)
            decision, _ = bucket.take(self._read(charges), charges, now)
        return decision

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        with self._lock:
            clock, now = self._times(now)
            self._write(bucket.settle(self._read(charges), charges, now), charges, clock, now)

    def reset(self, client: str | None = None, key_prefix: str | None = None) -> int:
        with self._lock:
            keys = [key for key in self._states if belongs(key, client, key_prefix)]
            for key in keys:
                del self._states[key], self._expires[key]
        return len(keys)

    def close(self) -> None:
        with self._lock:
            self._states.clear()
            self._expires.clear()
            self._queue.clear()
            self._queued.clear()

    def after_fork(self) -> None:
        """Begin empty: a lock may be held, or a change half made, by a thread of the parent."""
        self._lock = Lock()
        self.close()

    def __len__(self) -> int:
        return len(self._states)

    def _times(self, now: int | None) -> tuple[int, int]:
        """Return this store's time, and the time that a call is decided at."""
        clock = checked_now(self._clock())
        return clock, clock if now is None else checked_now(now)

    def _read(self, charges: Sequence[Charge]) -> dict[str, Kept]:
        return {c.key: self._states[c.key] for c in charges if c.key in self._states}

    def _write(
        self, writes: Mapping[str, Kept], charges: Sequence[Charge], clock: int, now: int
    ) -> None:
        for charge in charges:
            state = writes.get(charge.key)
            if state is None or (isinstance(state, State) and state.scale != charge.limit.scale):
                continue
            if not state:  # nobody holds a slot
                self._states.pop(charge.key, None)
                self._expires.pop(charge.key, None)
                continue
            expires = clock + bucket.ttl(charge.limit, state, now) * 1000
            if charge.key not in self._queued:
                heapq.heappush(self._queue, (expires, charge.key))
                self._queued.add(charge.key)
            self._states[charge.key], self._expires[charge.key] = state, expires
        self._sweep(clock, at_most=2 * len(charges))

    def _sweep(self, clock: int, at_most: int) -> None:
        """Drop buckets that are full by now: an absent one is the same.

        A call drops at most twice as many as it may add. So no call drops thousands, and dropping
        keeps up with new buckets.
        """
        for _ in range(at_most):
            if not self._queue or self._queue[0][0] > clock:
                return
            _, key = heapq.heappop(self._queue)
            expires = self._expires.get(key)
            if expires is not None and expires > clock:
                heapq.heappush(self._queue, (expires, key))
                continue
            self._queued.discard(key)
            if expires is not None:
                del self._states[key], self._expires[key]


def _monotonic_clock() -> Callable[[], int]:
    start = time.time_ns() - time.monotonic_ns()
    return lambda: (start + time.monotonic_ns()) // 1000
