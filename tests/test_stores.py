"""The stores: the same behaviour in memory, on fakeredis and on every engine."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any

import fakeredis
import pytest

from flask_bucket.decisions import Charge, Charges
from flask_bucket.errors import BucketUnreadable, ConfigError, StoreUnavailable
from flask_bucket.limits import EXACT, Limit
from flask_bucket.stores.base import Store
from flask_bucket.stores.memory import MemoryStore
from flask_bucket.stores.redis import RedisStore
from tests.conftest import START
from tests.servers import Server

SECOND = 1_000_000
LIMIT = Limit(capacity=10, refill_rate=2)
ALICE, ALSO_ALICE = "bucket:{alice}:search:per-second", "bucket:{alice}:login:per-second"
BOB = "bucket:{bob}:search:per-second"


def charge(cost: int = 1, key: str = ALICE, limit: Limit = LIMIT) -> Charge:
    return Charge(limit, key, cost)


def left(store: Store, key: str = ALICE, now: int = START, limit: Limit = LIMIT) -> int:
    return store.peek([charge(0, key, limit)], now).outcomes[0].remaining


def test_a_store_speaks_the_protocol(store: Store) -> None:
    assert isinstance(store, Store)


def test_a_burst_of_the_capacity_is_allowed_and_then_refused(store: Store) -> None:
    allowed = [store.take([charge()], now=START).allowed for _ in range(11)]
    assert allowed == [True] * 10 + [False]


def test_an_answer_says_what_is_left_and_how_long_to_wait(store: Store) -> None:
    (one,) = store.take([charge(4)], now=START).outcomes
    assert (one.allowed, one.remaining, one.retry_after, one.reset_after) == (True, 6, 0.0, 2.0)
    (two,) = store.take([charge(7)], now=START).outcomes
    assert (two.allowed, two.remaining, two.retry_after, two.reset_after) == (False, 6, 0.5, 2.0)


def test_tokens_come_back_with_time(store: Store) -> None:
    store.take([charge(10)], now=START)
    assert not store.take([charge()], now=START + 499_999).allowed
    assert store.take([charge()], now=START + 500_000).allowed


def test_a_cost_above_the_capacity_is_refused_for_ever(store: Store) -> None:
    answer = store.take([charge(11)], now=START)
    assert not answer.allowed
    assert answer.retry_after is None
    assert left(store) == 10


def test_a_cost_of_nothing_looks_without_taking(store: Store) -> None:
    store.settle([charge(15)], now=START)
    assert store.take([charge(0)], now=START).allowed
    assert store.take([charge(0)], now=START).outcomes[0].reset_after == 7.5


def test_a_peek_says_what_a_take_would_and_takes_nothing(store: Store) -> None:
    assert store.peek([charge(3)], START) == store.peek([charge(3)], START)
    assert store.peek([charge(3)], START) == store.take([charge(3)], now=START)
    assert left(store) == 7


def test_all_buckets_are_charged_or_none(store: Store) -> None:
    store.take([charge(10, BOB)], now=START)
    answer = store.take([charge(), charge(1, BOB)], now=START)
    assert not answer.allowed
    assert [outcome.allowed for outcome in answer.outcomes] == [True, False]
    assert left(store) == 10
    assert store.take([charge(), charge(1, ALSO_ALICE)], now=START).allowed
    assert (left(store), left(store, ALSO_ALICE)) == (9, 9)


def test_held_tokens_are_given_back_on_refusal(store: Store) -> None:
    store.take([charge(4)], now=START)
    store.take([charge(10, BOB)], now=START)
    refused = store.take([charge(1, BOB)], held=[charge(4)], now=START)
    assert not refused.allowed
    assert len(refused.outcomes) == 1
    assert left(store) == 10


def test_held_tokens_are_kept_when_allowed(store: Store) -> None:
    store.take([charge(4)], now=START)
    assert store.take([charge(1, BOB)], held=[charge(4)], now=START).allowed
    assert left(store) == 6


def test_a_refusal_stays_one_when_held_tokens_of_the_bucket_come_back(store: Store) -> None:
    """A regression: once they were back, the bucket had enough, and the refusal looked allowed."""
    store.take([charge(8)], now=START)
    assert store.take([charge(1)], now=START).allowed
    answer = store.take([charge(2)], held=[charge(1)], now=START)
    assert not answer.allowed
    assert answer.outcomes[0].retry_after == 0.5
    assert left(store) == 2


def test_a_shadow_limit_is_reported_and_refuses_nothing(store: Store) -> None:
    store.take([charge(9, BOB)], now=START)
    answer = store.take([charge()], shadow=[charge(1, BOB), charge(1, BOB)], now=START)
    assert answer.allowed
    assert [(o.shadow, o.allowed) for o in answer.outcomes] == [
        (False, True),
        (True, True),
        (True, False),
    ]
    assert (left(store), left(store, BOB)) == (9, 0)


def test_settling_may_leave_a_debt_that_must_be_refilled(store: Store) -> None:
    store.settle([charge(14)], now=START)
    answer = store.take([charge()], now=START)
    assert answer.outcomes[0].remaining == 0
    assert answer.retry_after == 2.5


def test_settling_gives_back_no_more_than_the_capacity(store: Store) -> None:
    store.take([charge(3)], now=START)
    store.settle([charge(-1)], now=START)
    assert left(store) == 8
    store.settle([charge(-100)], now=START)
    assert left(store) == 10


def test_a_bucket_follows_its_limit(store: Store) -> None:
    store.take([charge(4)], now=START)
    larger, smaller = Limit(100, 7, 3), Limit(2, 7, 3)
    assert left(store, limit=larger) == 6
    assert left(store, limit=smaller) == 2


@pytest.mark.parametrize("owed", [0, 1, 2, 5, 9])
def test_a_balance_that_needs_no_rounding_is_carried_over_exactly(store: Store, owed: int) -> None:
    """Also a debt: a part too many would be a microsecond more to wait."""
    thirds = Limit(10, 7, 3, "thirds")
    store.settle([charge(10 + owed)], now=START)
    answer = store.take([charge(limit=thirds)], now=START)
    assert answer.retry_after is not None
    assert round(answer.retry_after * SECOND) == -(-(owed + 1) * 3 * SECOND // 7)


def test_a_part_of_a_token_that_needs_no_rounding_is_carried_over_exactly(store: Store) -> None:
    store.settle([charge(10)], now=START)
    now = START + SECOND // 8
    store.settle([charge(1)], now=now)  # three quarters of a token are owed
    thirds = Limit(10, 7, 3, "thirds")
    assert store.take([charge(limit=thirds)], now=now).retry_after == 0.75


def test_a_clock_set_back_locks_nobody_out(store: Store) -> None:
    store.take([charge(10)], now=START)
    back = START - 3_600 * SECOND
    assert store.take([charge()], now=back).retry_after == 0.5
    assert store.take([charge()], now=back + 500_000).allowed


def test_a_reset_forgets_all_buckets_of_one_client(store: Store) -> None:
    for key in (ALICE, ALSO_ALICE, BOB):
        store.take([charge(5, key)], now=START)
    assert store.reset("alice") == 2
    assert store.reset("alice") == 0
    assert [left(store, key) for key in (ALICE, ALSO_ALICE, BOB)] == [10, 10, 5]


API = "bucket/api:{alice}:search:per-second"


def test_a_reset_without_a_client_forgets_everybody_s_buckets(store: Store) -> None:
    for key in (ALICE, ALSO_ALICE, BOB):
        store.take([charge(5, key)], now=START)
    assert store.reset() == 3
    assert [left(store, key) for key in (ALICE, ALSO_ALICE, BOB)] == [10, 10, 10]


def test_a_reset_may_be_of_one_prefix(store: Store) -> None:
    for key in (ALICE, BOB, API):
        store.take([charge(5, key)], now=START)
    assert store.reset("alice", "bucket/api") == 1
    assert [left(store, key) for key in (ALICE, BOB, API)] == [5, 5, 10]
    store.take([charge(5, API)], now=START)
    assert store.reset(None, "bucket") == 2
    assert [left(store, key) for key in (ALICE, BOB, API)] == [10, 10, 5]


@pytest.mark.parametrize("client", ["*", "a?ice", "[a]lice", "al", "alice}", "", "ali\\ce"])
def test_a_reset_takes_a_client_s_name_literally(store: Store, client: str) -> None:
    store.take([charge(5)], now=START)
    assert store.reset(client) == 0
    assert left(store) == 5


def test_a_call_about_nothing_is_allowed(store: Store) -> None:
    assert store.take([], now=START).allowed
    assert store.peek([], now=START).outcomes == ()
    store.settle([], now=START)


def test_taking_a_negative_cost_is_refused(store: Store) -> None:
    minus, plus = [charge(-1)], [charge(1, BOB)]
    for charges, held, shadow in ((minus, [], []), (plus, minus, []), (plus, [], minus)):
        with pytest.raises(ConfigError, match="at least 0"):
            store.take(charges, held, shadow, now=START)
    with pytest.raises(ConfigError, match="at least 0"):
        store.peek([charge(-1)], now=START)
    assert left(store) == 10


@pytest.mark.parametrize("now", [-1, EXACT, 1.5, "now", True])
def test_a_time_that_is_not_counted_exactly_is_refused(store: Store, now: Any) -> None:
    for call in (store.take, store.peek, store.settle):
        with pytest.raises(ConfigError, match="whole number of microseconds") as refused:
            call([charge()], now=now)
        assert repr(now) in str(refused.value)


@pytest.mark.parametrize("now", [0, EXACT - 1])
def test_a_time_may_be_anything_that_is_counted_exactly(store: Store, now: int) -> None:
    assert store.take([charge()], now=now).now == now


def test_no_token_is_granted_twice_to_threads_that_ask_at_once(store: Store) -> None:
    def ask(_: int) -> bool:
        return store.take([charge(1)], now=START).allowed

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(200))) == 10


def test_repeated_charges_are_charged_again(store: Store) -> None:
    slow = Limit(3, 1, 86_400)
    both = Charges([charge(1, ALICE, slow), charge(2, BOB, slow)])
    first = store.take(both)
    assert [outcome.remaining for outcome in first.outcomes] == [2, 1]
    again = store.take(both)
    assert not again.allowed
    assert [outcome.allowed for outcome in again.outcomes] == [True, False]
    assert left(store, ALICE, START, slow) == 2


def test_repeated_charges_may_come_with_others(store: Store) -> None:
    alice = Charges([charge(4)])
    assert store.take(alice, now=START).outcomes[0].remaining == 6
    assert store.take(alice, now=START + 500_000).outcomes[0].remaining == 3
    assert not store.take(alice, (), [charge(3)], now=START + 500_000).allowed
    refused = store.take(Charges([charge(6)]), alice, now=START + 500_000)
    assert (refused.allowed, left(store, ALICE, START + 500_000)) == (False, 7)


def test_repeated_charges_may_go_to_another_store(store: Store, server: Server) -> None:
    other = RedisStore.from_url(server.url, timeout=5, key_prefix="other")
    limit = Limit(3, 1, 86_400)
    both = Charges([charge(1, "other:{carol}:again:per-day", limit)])
    assert other.take(both).outcomes[0].remaining == 2
    third = RedisStore(fakeredis.FakeRedis(server=fakeredis.FakeServer()))
    assert third.take(both).outcomes[0].remaining == 2
    assert other.take(both).outcomes[0].remaining == 1
    other.reset("carol")
    other.close()


def test_repeated_charges_cannot_add_tokens(store: Store) -> None:
    for _ in range(2):
        with pytest.raises(ConfigError, match="at least 0"):
            store.take(Charges([charge(-1)]))


def test_a_store_may_be_used_again_after_it_was_closed(store: Store) -> None:
    store.take([charge()], now=START)
    store.close()
    store.close()
    assert store.take([charge()], now=START).allowed


class TestRedis:
    def test_the_server_s_clock_decides(self, server: Server) -> None:
        store = RedisStore.from_url(server.url, timeout=5)
        with server.client() as client:
            before, now, after = client.time(), store.take([charge()]).now, client.time()
        assert before <= divmod(now, SECOND) <= after
        store.close()

    @pytest.mark.parametrize("kind", ["text", "list", "hash of other things"])
    def test_a_key_that_holds_something_else_is_unreadable(self, server: Server, kind: str) -> None:
        store = RedisStore.from_url(server.url, timeout=5)
        with server.client() as client:
            if kind == "text":
                client.set(ALICE, "hello")
            elif kind == "list":
                client.rpush(ALICE, "hello")
            else:
                client.hset(ALICE, "tokens", "many")
            with pytest.raises(BucketUnreadable):
                store.take([charge(), charge(1, BOB)], now=START)
            # All or nothing: the bucket that could be read was not charged.
            assert not client.exists(BOB)
        store.close()

    def test_a_server_out_of_reach_is_unavailable(self, own_server: Server) -> None:
        store = RedisStore.from_url(own_server.url, timeout=5)
        own_server.kill()
        for call in (store.take, store.peek, store.settle):
            with pytest.raises(StoreUnavailable):
                call([charge()])
        with pytest.raises(StoreUnavailable):
            store.reset("alice")
        own_server.start()
        assert store.take([charge()]).allowed
        store.close()

    def test_a_call_that_was_packed_once_survives_a_flush(self, server: Server) -> None:
        store = RedisStore.from_url(server.url, timeout=5)
        charges = Charges([charge(1, ALICE, Limit(10, 1, 86_400))])
        remaining = []
        with server.client() as client:
            client.flushall()
            for _ in range(3):
                remaining.append(store.take(charges).outcomes[0].remaining)
                client.script_flush()
        assert remaining == [9, 8, 7]
        store.close()

    def test_a_flushed_script_still_costs_one_token(self, server: Server) -> None:
        store = RedisStore.from_url(server.url, timeout=5)
        with server.client() as client:
            for remaining in (9, 8, 7):
                client.script_flush()
                assert store.take([charge()], now=START).outcomes[0].remaining == remaining
        store.close()

    def test_a_refusal_writes_nothing(self, server: Server) -> None:
        store = RedisStore.from_url(server.url, timeout=5)
        store.take([charge(10)], now=START)
        with server.client() as client:
            before, ttl = client.hgetall(ALICE), client.pttl(ALICE)
            assert not store.take([charge(5), charge(1, BOB)], now=START + 400_000).allowed
            assert client.hgetall(ALICE) == before
            assert client.pttl(ALICE) <= ttl
            assert not client.exists(BOB)
        store.close()

    def test_a_bucket_is_stored_in_whole_numbers(self, server: Server) -> None:
        """Written by tostring, this time would be 1.7e+15."""
        store = RedisStore.from_url(server.url, timeout=5)
        store.take([charge(3)], now=START)
        with server.client() as client:
            assert client.hgetall(ALICE) == {
                b"tokens": b"3500000",
                b"last_refill": b"1700000000000000",
                b"scale": b"500000",
            }
        store.close()

    def test_a_bucket_holds_the_text_of_a_limit_that_is_to_be_noted(self, server: Server) -> None:
        store = RedisStore.from_url(server.url, timeout=5)
        noted = replace(charge(3), noted="2/second burst 10")
        with server.client() as client:
            store.take([noted, charge(1, BOB)], now=START)
            assert client.hget(ALICE, "limit") == b"2/second burst 10"
            assert client.hlen(BOB) == 3
            store.take([charge()], now=START)  # says nothing of it
            assert client.hget(ALICE, "limit") == b"2/second burst 10"
            assert left(store) == 6
        store.close()

    def test_the_user_may_make_the_client(self) -> None:
        store = RedisStore(fakeredis.FakeRedis(server=fakeredis.FakeServer()), key_prefix="mine")
        store.take([charge(5, "mine:{alice}:a:b")], now=START)
        store.take([charge(5)], now=START)
        assert store.reset("alice") == 1


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
