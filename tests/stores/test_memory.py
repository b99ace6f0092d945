"""The in-process store."""

from __future__ import annotations

from itertools import pairwise

from flask_bucket.stores.memory import MemoryStore
from tests.conftest import START
from tests.stores.conftest import BOB, SECOND, charge


class TestMemory:
    def test_the_store_s_clock_decides_by_default(self) -> None:
        store = MemoryStore(clock=lambda: START)
        assert store.take([charge()]).now == START

    def test_without_a_clock_its_time_is_close_to_the_wall_clock_and_never_goes_back(self) -> None:
        store = MemoryStore()
        times = [store.take([charge(0)]).now for _ in range(100)]
        assert times == sorted(times)
        assert times[0] > START

    def test_full_buckets_are_dropped(self) -> None:
        clock = [START]
        store = MemoryStore(clock=lambda: clock[0])
        for n in range(10):
            store.take([charge(1, f"bucket:{{{n}}}:a:b")])
        assert len(store) == 10
        clock[0] += 61 * SECOND
        for _ in range(10):
            store.take([charge()])
        assert len(store) == 1

    def test_a_bucket_that_is_used_is_not_dropped(self) -> None:
        clock = [START]
        store = MemoryStore(clock=lambda: clock[0])
        store.settle([charge(1_000)])
        for _ in range(20):
            clock[0] += 20 * SECOND
            store.take([charge(1, BOB)])
        assert not store.take([charge(1)]).allowed

    def test_each_call_drops_a_bounded_number_and_more_than_it_adds(self) -> None:
        clock = [START]
        store = MemoryStore(clock=lambda: clock[0])
        for n in range(1_000):
            store.take([charge(1, f"bucket:{{{n}}}:a:b")])
        clock[0] += 3_600 * SECOND
        sizes = [len(store)]
        for n in range(1_000):
            store.take([charge(1, f"bucket:{{new-{n}}}:a:b")])
            sizes.append(len(store))
        shrinks = [after - before for before, after in pairwise(sizes)]
        # One is added and two are dropped, until the old ones are gone.
        assert shrinks == [-1] * 500 + [1] * 500

    def test_a_bucket_that_is_reset_and_used_again_is_queued_once(self) -> None:
        """A regression: each reset left one more entry in the queue while the key lived."""
        clock = [START]
        store = MemoryStore(clock=lambda: clock[0])
        for _ in range(50):
            store.take([charge()])
            store.reset("alice")
            clock[0] += 2 * SECOND
        store.take([charge()])
        assert len(store._queue) == 1
        clock[0] += 3_600 * SECOND
        store.take([charge(1, BOB)])
        assert len(store) == 1
        store.take([charge()])
        assert len(store) == len(store._queue) == 2
