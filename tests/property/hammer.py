"""Worker processes that take from one hot bucket as fast as they can."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread

from flask_bucket.decisions import Charge
from flask_bucket.errors import StoreUnavailable
from flask_bucket.limits import Limit
from flask_bucket.stores.redis import RedisStore
from tests.processes import context

PROCESSES, THREADS = 3, 3
WORKERS = PROCESSES * THREADS

LIMIT = Limit(capacity=50, refill_rate=300)
CHARGE = Charge(LIMIT, "bucket:{hot}:key:x")


@dataclass
class Taken:
    """The times that a worker saw, in microseconds, on the server's clock."""

    grants: list[int] = field(default_factory=list)
    refusals: list[int] = field(default_factory=list)
    #: Calls that were not answered, each from its begin to its end by the clock of this host,
    #: which is the server's too. The server may have granted them.
    lost: list[tuple[int, int]] = field(default_factory=list)

    def __add__(self, other: Taken) -> Taken:
        return Taken(
            self.grants + other.grants, self.refusals + other.refusals, self.lost + other.lost
        )

    @property
    def elapsed(self) -> float:
        """Seconds from the first decision to the last one."""
        times = self.grants + self.refusals
        return (max(times) - min(times)) / 1_000_000


def hammer(url: str, seconds: float) -> Taken:
    """Take on `WORKERS` threads, in several processes."""
    with ProcessPoolExecutor(PROCESSES, mp_context=context()) as pool:
        runs = [pool.submit(_process, url, seconds) for _ in range(PROCESSES)]
        return sum((run.result() for run in runs), Taken())


def _process(url: str, seconds: float) -> Taken:
    store = RedisStore.from_url(url, timeout=5)
    until = time.monotonic() + seconds
    with ThreadPoolExecutor(THREADS) as pool:
        runs = [pool.submit(_thread, store, until) for _ in range(THREADS)]
        taken = sum((run.result() for run in runs), Taken())
    store.close()
    return taken


def _thread(store: RedisStore, until: float) -> Taken:
    taken = Taken()
    while time.monotonic() < until:
        began = time.time_ns() // 1000
        try:
            decision = store.take([CHARGE])
        except StoreUnavailable:
            taken.lost.append((began, time.time_ns() // 1000))
            time.sleep(0.001)
        else:
            (taken.grants if decision.allowed else taken.refusals).append(decision.now)
    return taken


@contextmanager
def meanwhile(hurt: Callable[[], None], every: float) -> Iterator[None]:
    """Do something again and again while the block runs."""
    over = Event()

    def loop() -> None:
        while not over.wait(every):
            hurt()

    thread = Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
