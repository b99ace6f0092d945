"""Connections that are slow, not quiet or lost, or that answer nonsense."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from flask_bucket.errors import StoreUnavailable
from flask_bucket.stores.redis import RedisStore
from tests.outage.links.conftest import CHARGE
from tests.outage.proxy import Proxy
from tests.outage.service import ORDINARY, Service, Stalls
from tests.servers import Server


def test_connecting_and_the_reply_share_one_timeout(valkey: Server, stalls: Stalls) -> None:
    with Proxy(valkey.port) as proxy, valkey.client() as admin:
        admin.execute_command("ACL", "SETUSER", "slow", "on", ">x", "~*", "+@all")
        proxy.latency = 0.4  # for AUTH, for SELECT and for the charge
        store = RedisStore.from_url(f"redis://slow:x@127.0.0.1:{proxy.port}/1", timeout=1)
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"connecting took|in the making"):
            store.take([CHARGE])
        assert time.monotonic() - began < 1 + ORDINARY + stalls.longest
        # The connection is up by now, and the next request has time enough.
        assert store.take([CHARGE]).outcomes[0].remaining == 4
        assert proxy.connections == 1
        store.close()


@contextmanager
def answering(*answers: bytes) -> Iterator[tuple[int, list[socket.socket], threading.Semaphore]]:
    """Serve connections whose charges are answered with these bytes, each with one of them.

    Yields the port, the connections that came, and what is released with each answer.
    """
    served: list[socket.socket] = []
    said = threading.Semaphore(0)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for answer in answers:
                peer = listener.accept()[0]
                served.append(peer)
                while b"EVALSHA" not in peer.recv(65_536):
                    peer.sendall(b"+OK\r\n")
                peer.sendall(answer or ANSWER)
                if not answer:
                    peer.shutdown(socket.SHUT_WR)
                said.release()

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1], served, said
    for peer in served:
        peer.close()


#: The script's: the time, and of one charge that it was affordable, the tokens taken and left, and
#: their time.
ANSWER = b"*5\r\n:9\r\n:0\r\n:1\r\n:4\r\n:9\r\n"


@pytest.mark.parametrize("first", [ANSWER + b":1\r\n", b""], ids=["an answer too many", "the end"])
def test_a_connection_that_is_not_quiet_is_not_used(first: bytes) -> None:
    """An unasked answer would be taken for the answer to the next charge."""
    with answering(first, ANSWER) as (port, served, said):
        store = RedisStore.from_url(f"redis://127.0.0.1:{port}", timeout=5)
        for _ in range(2):
            assert store.take([CHARGE]).allowed
            assert said.acquire(timeout=15)
        assert len(served) == 2
        store.close()


@pytest.mark.parametrize(
    "answer",
    [
        *(b"+OK\r\n", b"+QUEUED\r\n", b"$-1\r\n", b"*-1\r\n", b"*0\r\n", b":5\r\n"),
        b"*1\r\n:5\r\n",
        b"*4\r\n:9\r\n:0\r\n:4\r\n:9\r\n",
        b"*5\r\n:9\r\n$1\r\n0\r\n:1\r\n:4\r\n:9\r\n",
        b"*5\r\n:9\r\n:0\r\n:1\r\n-ERR no\r\n:9\r\n",
        b"*9\r\n:9\r\n:0\r\n:1\r\n:4\r\n:9\r\n:0\r\n:1\r\n:4\r\n:9\r\n",
    ],
)
def test_an_answer_that_is_none_of_the_script_s_is_an_outage(answer: bytes) -> None:
    with answering(answer) as (port, _, _):
        store = RedisStore.from_url(f"redis://127.0.0.1:{port}", timeout=5)
        with pytest.raises(StoreUnavailable, match="not one of the script's"):
            store.take([CHARGE])
        store.close()


def test_those_who_wait_for_a_connection_give_up_when_one_is_lost(valkey: Server) -> None:
    with Proxy(valkey.port) as proxy:
        store = RedisStore.from_url(proxy.url, timeout=20, max_connections=1)
        store.take([CHARGE])
        proxy.black_hole = True
        said: list[str] = []

        def take() -> None:
            try:
                store.take([CHARGE])
            except StoreUnavailable as error:
                said.append(str(error))

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        proxy.reset()
        for thread in threads:
            thread.join(timeout=15)
            assert not thread.is_alive()
        assert len(said) == 4
        store.close()


def test_a_name_that_is_nowhere_is_an_outage() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        service = Service(f"redis://127.0.0.1:{probe.getsockname()[1]}")
        assert service.get().status == 200
        assert service.health().state == "degraded"
        assert service.health().reason
        service.close()
