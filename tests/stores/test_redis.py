"""The store in Redis."""

from __future__ import annotations

from dataclasses import replace

import fakeredis
import pytest

from flask_bucket.decisions import Charges
from flask_bucket.errors import BucketUnreadable, StoreUnavailable
from flask_bucket.limits import Limit
from flask_bucket.stores.redis import RedisStore
from tests.conftest import START
from tests.servers import Server
from tests.stores.conftest import ALICE, BOB, SECOND, charge, left


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
            store.take([replace(noted, cost=0, up_to=1, noted="2/second burst 11")], now=START)
            assert client.hget(ALICE, "limit") == b"2/second burst 11"
            store.take([charge()], now=START)  # says nothing of it
            assert client.hget(ALICE, "limit") == b"2/second burst 11"
            assert left(store) == 5
        store.close()

    def test_the_user_may_make_the_client(self) -> None:
        store = RedisStore(fakeredis.FakeRedis(server=fakeredis.FakeServer()), key_prefix="mine")
        store.take([charge(5, "mine:{alice}:a:b")], now=START)
        store.take([charge(5)], now=START)
        assert store.reset("alice") == 1
