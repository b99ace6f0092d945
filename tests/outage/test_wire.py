"""One connection: the timeout counts for a whole call, and nonsense is an outage."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import hiredis
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from flask_bucket import Charge, Limit, StoreUnavailable
from flask_bucket.stores.outage import OutageStore
from flask_bucket.stores.redis import RedisStore
from flask_bucket.stores.redis.wire import packed
from tests.outage.proxy import Proxy
from tests.outage.service import ORDINARY, Service, Stalls
from tests.servers import Server

CHARGE = Charge(Limit.parse("5/day"), "bucket:{alice}:page:per-day")

Serve = Callable[[socket.socket], None]


@contextmanager
def server(serve: Serve) -> Iterator[int]:
    """Serve each connection in a thread of its own, and yield the port."""
    peers: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    peer = listener.accept()[0]
                except OSError:
                    return
                peers.append(peer)
                threading.Thread(target=guarded, args=[peer], daemon=True).start()

        def guarded(peer: socket.socket) -> None:
            with suppress(OSError):  # the client has given up
                serve(peer)

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    for peer in peers:
        peer.close()


def silent(peer: socket.socket) -> None:
    """Read, and never answer."""
    while peer.recv(65_536):
        pass


def dripping(peer: socket.socket) -> None:
    """Answer a byte at a time, each well within the timeout."""
    peer.recv(65_536)
    for byte in b"*5\r\n:9\r\n:0\r\n:1\r\n:4\r\n:9\r\n" * 10:
        time.sleep(0.05)  # the drip
        peer.sendall(bytes([byte]))


@pytest.mark.parametrize("serve", [silent, dripping])
def test_the_timeout_counts_for_the_whole_reply(serve: Serve, stalls: Stalls) -> None:
    with server(serve) as port:
        store = RedisStore.from_url(f"redis://127.0.0.1:{port}", timeout=0.2)
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            store.take([CHARGE])
        assert time.monotonic() - began < 0.2 + ORDINARY + stalls.longest
        store.close()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timers")
def test_hiredis_gets_texts_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """It crashes if a signal's handler raises while Python spells a number for it."""
    given: list[tuple[object, ...]] = []
    monkeypatch.setattr(hiredis, "pack_command", given.append)
    packed("EVALSHA", b"sha", 1, "key", -5)
    assert given == [("EVALSHA", b"sha", "1", "key", "-5")]


def test_a_signal_that_keeps_interrupting_extends_no_wait(stalls: Stalls) -> None:
    fired: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: fired.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        with server(silent) as port:
            store = RedisStore.from_url(f"redis://127.0.0.1:{port}", timeout=0.3)
            began = time.monotonic()
            with pytest.raises(StoreUnavailable):
                store.take([CHARGE])
            took = time.monotonic() - began
            store.close()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(fired) > 2
    assert took < 0.3 + ORDINARY + stalls.longest


class LateError(Exception):
    """As the handler of an alarm raises it."""


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Let an alarm's handler raise LateError after some seconds."""

    def late(number: int, frame: object) -> None:
        raise LateError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("handed_in", [False, True])
def test_the_exception_of_a_signals_handler_surfaces_and_is_no_outage(
    valkey: Server, handed_in: bool
) -> None:
    with Proxy(valkey.port) as proxy:
        client = redis.Redis(port=proxy.port, socket_timeout=5, retry=Retry(NoBackoff(), 0))
        store = RedisStore(client) if handed_in else RedisStore.from_url(proxy.url, timeout=5)
        guarded = OutageStore(store)
        assert guarded.take([CHARGE]).outcomes[0].remaining == 4
        proxy.latency = 1
        with alarm(0.2), pytest.raises(LateError):
            guarded.take([CHARGE])
        proxy.latency = 0
        assert guarded.health().state == "ok"
        # The late answer, 3, is not taken for this one's.
        assert guarded.take([CHARGE]).outcomes[0].remaining == 2
        guarded.close()


SENSELESS = {
    "moved nowhere": b"-MOVED\r\n",
    "asked nowhere": b"-ASK 7\r\n",
    "a list as a key": b"%1\r\n*1\r\n:1\r\n:2\r\n",
    "an endless array": b"*4294967295\r\n:1\r\n",
    "a negative length": b"$-7\r\nabc\r\n",
    "an error inside": b"*5\r\n:9\r\n-ERR no\r\n:1\r\n:4\r\n:9\r\n",
    "not the protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "numbers beyond all": b"*5\r\n:" + b"9" * 4000 + b"\r\n:0\r\n:1\r\n:4\r\n:9\r\n",
    "a long text": b"$8000000\r\n" + b"x" * 8_000_000 + b"\r\n",
}


def saying(reply: bytes) -> Serve:
    def serve(peer: socket.socket) -> None:
        while asked := peer.recv(65_536):
            # A client of redis-py introduces itself first.
            peer.sendall(reply if b"EVAL" in asked else b"+OK\r\n" * asked.count(b"*"))

    return serve


def client_of(port: int, protocol: int) -> redis.Redis:
    return redis.Redis(
        port=port,
        protocol=protocol,
        socket_timeout=1,
        socket_connect_timeout=1,
        retry=Retry(NoBackoff(), 0),
    )


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["url", "client", "client of protocol 3"])
@pytest.mark.parametrize("reply", SENSELESS.values(), ids=SENSELESS.keys())
def test_a_reply_that_makes_no_sense_is_an_outage(reply: bytes, kind: str) -> None:
    with server(saying(reply)) as port:
        client = client_of(port, 3 if kind.endswith("3") else 2)
        service = Service(f"redis://127.0.0.1:{port}", redis=None if kind == "url" else client)
        seen = service.get()
        assert (seen.status, seen.decided_by_store) == (200, False)
        service.close()
        client.close()


SLOTS = b"*1\r\n*3\r\n:%s\r\n:%s\r\n*2\r\n%s\r\n%s\r\n"
ADDRESS = b"*2\r\n%s\r\n%s\r\n"
HOST, PORT = b"$9\r\n127.0.0.1", b"$4\r\n6379"

SENSELESS_PLACES = {
    "a cluster says OK": ("redis+cluster://{}", b"+OK\r\n"),
    "a cluster says a number": ("redis+cluster://{}", b":1\r\n"),
    "a cluster says nothing": ("redis+cluster://{}", b"*-1\r\n"),
    "a cluster has no nodes": ("redis+cluster://{}", b"*1\r\n*2\r\n:0\r\n:16383\r\n"),
    "slots that do not exist": ("redis+cluster://{}", SLOTS % (b"0", b"99999", HOST, b":6379")),
    "slots that run backwards": ("redis+cluster://{}", SLOTS % (b"9", b"-9", HOST, b":6379")),
    "a node whose port is a word": ("redis+cluster://{}", SLOTS % (b"0", b"16383", HOST, b"+x")),
    "a node whose port is too large": (
        "redis+cluster://{}",
        SLOTS % (b"0", b"16383", HOST, b":99999"),
    ),
    "a node whose host is a number": ("redis+cluster://{}", SLOTS % (b"0", b"16383", b":7", b":1")),
    "a sentinel says OK": ("redis+sentinel://{}/service", b"+OK\r\n"),
    "a sentinel says a number": ("redis+sentinel://{}/service", b":1\r\n"),
    "a sentinel names half": ("redis+sentinel://{}/service", b"*1\r\n" + HOST + b"\r\n"),
    "a sentinel's port is a word": ("redis+sentinel://{}/service", ADDRESS % (HOST, b"+port")),
    "a sentinel's host is not text": (
        "redis+sentinel://{}/service",
        ADDRESS % (b"$2\r\n\xff\xfe", PORT),
    ),
    "a sentinel's host is an error": ("redis+sentinel://{}/service", ADDRESS % (b"-ERR", PORT)),
}


@pytest.mark.parametrize(("url", "answer"), SENSELESS_PLACES.values(), ids=SENSELESS_PLACES.keys())
def test_a_place_that_makes_no_sense_is_an_outage(url: str, answer: bytes) -> None:
    def serve(peer: socket.socket) -> None:
        while peer.recv(65_536):
            peer.sendall(answer)

    with server(serve) as port:
        service = Service(url.format(f"127.0.0.1:{port}"))
        seen = service.get()
        assert (seen.status, seen.decided_by_store) == (200, False)
        assert service.health().state != "ok"
        service.close()


def test_a_cluster_that_redirects_to_nowhere_is_an_outage() -> None:
    """The map is right, but then a node says that another node has the slot, without naming it."""

    def serve(peer: socket.socket) -> None:
        port = b":%d" % peer.getsockname()[1]
        while asked := peer.recv(65_536):
            learned = SLOTS % (b"0", b"16383", HOST, port)
            peer.sendall(learned if b"SLOTS" in asked else b"-MOVED 7 \r\n")

    with server(serve) as port:
        service = Service(f"redis+cluster://127.0.0.1:{port}")
        seen = service.get()
        assert (seen.status, seen.decided_by_store) == (200, False)
        assert service.health().state != "ok"
        service.close()
