"""The ways to a server: URLs, TLS, unix sockets, a user's own client, users with few rights."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from flask_bucket import ConfigError
from flask_bucket.decisions import Charge
from flask_bucket.errors import StoreUnavailable
from flask_bucket.limits import Limit
from flask_bucket.stores.redis import RedisStore
from flask_bucket.stores.redis.urls import place
from tests.outage.proxy import Proxy
from tests.outage.service import ORDINARY, Service, Stalls
from tests.servers import ENGINES, Cluster, Server, TlsServer, valkey_binary
from tests.test_forks import in_child

CHARGE = Charge(Limit.parse("5/day"), "bucket:{alice}:page:per-day")

BAD_URLS = [
    ("http://user:secret@host", "must begin with one of the schemes"),
    ("redis://:secret@host:none/0", "not every host is a name"),
    ("redis://:secret@host/first", "the database is a number"),
    ("redis://:secret@host:6379/0?socket_timeout=soon", "socket_timeout"),
    ("unix://:secret@", "the path of the socket is missing"),
    ("unix://secret/s", "a socket has no host"),
    ("redis://host/0?secret", "the form name=value"),
    ("redis+sentinel://:secret@host:26379", "the service that the sentinels watch"),
    ("redis+sentinel://:secret@host:26379/service/first", "the database is a number"),
    ("redis+sentinel://:secret@a,,b/service", "not every host is a name"),
    ("redis+cluster://:secret@host:7000/1", "the database 0 only"),
    ("redis+cluster://:secret@", "not every host is a name"),
    ("redis+cluster://:secret@host:port", "not every host is a name"),
    ("redis+other://:secret@host", "must begin with one of the schemes"),
    ("rediss://:secret@host?ssl_ca_certs=/missing.pem", "No such file"),
    ("rediss://:secret@host?ssl_cert_reqs=secret", "none, optional or required"),
    ("redis://host/0?password=secret&port=x", "port"),
]


@pytest.mark.parametrize(("url", "reason"), BAD_URLS)
def test_a_url_that_is_none_is_refused_without_its_password(url: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RedisStore.from_url(url)
    message = str(caught.value)
    assert reason in message
    assert "secret" not in message
    assert "Expected redis://host:6379/0" in message


@pytest.mark.parametrize(
    "url",
    ["redis://host", "rediss://host", "unix:///s", "redis+sentinel://a/s", "redis+cluster://a"],
)
def test_an_option_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="socket_timeuot"):
        RedisStore.from_url(url, socket_timeuot=1)


def test_a_sentinel_option_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="pasword"):
        RedisStore.from_url("redis+sentinel://a/s", sentinel_kwargs={"pasword": "x"})


@pytest.mark.parametrize("scheme", ["unix", "redis+unix", "valkey+unix"])
def test_a_unix_socket_is_a_way(tmp_path: Path, scheme: str) -> None:
    path = tmp_path / "s"
    server = Server(valkey_binary(), "--unixsocket", str(path)).start()
    try:
        store = RedisStore.from_url(f"{scheme}://{path}?db=3", timeout=5)
        assert store.take([CHARGE]).outcomes[0].remaining == 4
        assert store.reset("alice") == 1
        store.close()
    finally:
        server.stop()


def test_a_url_may_say_valkey(valkey: Server) -> None:
    store = RedisStore.from_url(valkey.url.replace("redis://", "valkey://"), timeout=5)
    assert store.take([CHARGE]).outcomes[0].remaining == 4
    store.close()


@pytest.mark.parametrize(
    ("url", "topology"),
    [
        ("valkeys://host", ""),
        ("valkey+sentinel://a/s", "sentinel"),
        ("valkey+cluster://a", "cluster"),
        ("valkeys+cluster://a", "cluster"),
    ],
)
def test_valkey_stands_for_redis_in_every_scheme(url: str, topology: str) -> None:
    found = place(url, 0.1, 2.0, {})
    assert found.topology == topology
    assert found.kind is place(url.replace("valkey", "redis"), 0.1, 2.0, {}).kind


# TLS


def test_tls_is_checked_and_works(tls_server: TlsServer) -> None:
    store = RedisStore.from_url(tls_server.url, timeout=5, ssl_ca_certs=str(tls_server.ca))
    with tls_server.client() as admin:
        admin.flushall()
    assert store.take([CHARGE]).outcomes[0].remaining == 4
    with tls_server.client() as admin:
        before = admin.info("stats")["total_connections_received"]
        assert store.take([CHARGE]).outcomes[0].remaining == 3
        assert admin.info("stats")["total_connections_received"] == before
    assert store.reset("alice") == 1
    store.close()


def test_the_options_of_tls_can_stand_in_the_url(tls_server: TlsServer) -> None:
    store = RedisStore.from_url(f"{tls_server.url}?ssl_ca_certs={tls_server.ca}", timeout=5)
    assert store.peek([CHARGE])
    store.close()


def test_a_certificate_of_nobody_known_is_refused(tls_server: TlsServer) -> None:
    store = RedisStore.from_url(tls_server.url, timeout=5)
    with pytest.raises(StoreUnavailable, match="certificate verify failed"):
        store.take([CHARGE])


def test_a_certificate_of_another_host_is_refused(tls_server: TlsServer) -> None:
    url = tls_server.url.replace("localhost", "127.0.0.1")
    store = RedisStore.from_url(url, timeout=5, ssl_ca_certs=str(tls_server.ca))
    with pytest.raises(StoreUnavailable, match="certificate"):
        store.take([CHARGE])


def test_checks_are_off_only_by_request(tls_server: TlsServer) -> None:
    store = RedisStore.from_url(tls_server.url, timeout=5, ssl_cert_reqs="none")
    assert store.peek([CHARGE])
    store.close()


def test_a_plain_server_is_an_outage_over_tls(valkey: Server) -> None:
    url = valkey.url.replace("redis://", "rediss://")
    service = Service(url)
    seen = service.get()
    assert (seen.status, seen.decided_by_store) == (200, False)
    service.close()


def test_a_tls_handshake_is_part_of_the_timeout(tls_server: TlsServer, stalls: Stalls) -> None:
    with Proxy(tls_server.port) as proxy:
        proxy.latency = 0.4
        url = f"rediss://localhost:{proxy.port}"
        store = RedisStore.from_url(url, timeout=0.6, ssl_ca_certs=str(tls_server.ca))
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            store.take([CHARGE])
        assert time.monotonic() - began < 0.6 + ORDINARY + stalls.longest
        store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_fork_leaves_a_connection_over_tls_to_the_parent(tls_server: TlsServer) -> None:
    with Proxy(tls_server.port) as proxy, tls_server.client() as client:
        client.flushall()
        store = RedisStore.from_url(
            f"rediss://localhost:{proxy.port}", timeout=10, ssl_ca_certs=str(tls_server.ca)
        )
        assert store.take([CHARGE]).outcomes[0].remaining == 4
        assert in_child(lambda: store.take([CHARGE]).outcomes[0].remaining == 3)
        assert store.take([CHARGE]).outcomes[0].remaining == 2
        assert proxy.begun == 2, "the parent's own, and the child's own"
        store.close()


# Time


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
    """What came unasked would be taken for the answer to the next charge."""
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


# Clients of the user's


def given(valkey: Server, **settings: Any) -> redis.Redis:
    return redis.Redis(port=valkey.port, **settings)


def test_a_client_that_retries_is_warned_of(
    valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    client = given(valkey, socket_timeout=1, retry=Retry(NoBackoff(), 2))
    RedisStore(client)
    assert "up to 2 more times" in caplog.text
    client.close()


def test_a_client_without_a_timeout_is_warned_of(
    valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    client = given(valkey, socket_timeout=None, retry=Retry(NoBackoff(), 0))
    RedisStore(client)
    assert "no socket_timeout" in caplog.text
    assert "again" not in caplog.text
    client.close()


def test_a_careful_client_is_not_warned_of(
    valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    client = given(valkey, socket_timeout=1, socket_connect_timeout=1, retry=Retry(NoBackoff(), 0))
    store = RedisStore(client)
    assert store.take([CHARGE]).outcomes[0].remaining == 4
    assert not caplog.records
    store.close()


# Users with few rights


NEEDED = ("+evalsha", "+eval", "+hmget", "+hset", "+pexpire", "+time")
FOR_RESETS = ("+scan", "+unlink")


@pytest.mark.parametrize("engine", ENGINES)
def test_the_documented_rights_are_enough_and_none_is_idle(engine: str) -> None:
    server = Server(ENGINES[engine]()).start()
    try:
        with server.client() as admin:

            def allow(*rights: str) -> None:
                admin.execute_command(
                    *("ACL", "SETUSER", "app", "reset", "on", ">word", "~bucket:*", *rights)
                )

            url = f"redis://app:word@127.0.0.1:{server.port}/0"
            store = RedisStore.from_url(url, timeout=5)
            allow(*NEEDED)
            assert store.take([CHARGE]).outcomes[0].remaining == 4
            store.settle([CHARGE])
            assert store.peek([CHARGE]).outcomes[0].remaining == 2
            with pytest.raises(StoreUnavailable):
                store.take([Charge(CHARGE.limit, "other:{alice}:page:per-day")])
            with pytest.raises(StoreUnavailable):
                store.reset("alice")
            allow(*NEEDED, *FOR_RESETS)
            assert store.reset("alice") == 1
            allow(*NEEDED, "+select")
            numbered = RedisStore.from_url(f"{url[:-1]}1", timeout=5)
            assert numbered.take([CHARGE]).outcomes[0].remaining == 4
            numbered.close()
            for idle in NEEDED:
                allow(*(right for right in NEEDED if right != idle))
                admin.script_flush()
                with pytest.raises(StoreUnavailable):
                    store.take([CHARGE])
            store.close()
    finally:
        server.stop()


def test_the_documented_rights_are_enough_over_tls(tls_server: TlsServer) -> None:
    with tls_server.client() as admin:
        admin.flushall()
        admin.execute_command(
            *("ACL", "SETUSER", "app", "reset", "on", ">word", "~bucket:*", *NEEDED)
        )
        store = RedisStore.from_url(
            f"rediss://app:word@localhost:{tls_server.port}/0",
            timeout=10,
            ssl_ca_certs=str(tls_server.ca),
        )
        assert store.take([CHARGE]).outcomes[0].remaining == 4
        store.close()
        admin.execute_command("ACL", "DELUSER", "app")


def test_the_rights_on_a_cluster_are_enough() -> None:
    cluster = Cluster(valkey_binary())
    try:
        cluster.start()
        for node in cluster.nodes:
            with node.client() as admin:
                admin.execute_command(
                    *("ACL", "SETUSER", "app", "reset", "on", ">word", "~bucket:*"),
                    *(*NEEDED, "+cluster|slots", "+asking"),
                )
        hosts = cluster.url.removeprefix("redis+cluster://")
        store = RedisStore.from_url(f"redis+cluster://app:word@{hosts}", timeout=5)
        assert store.take([Charge(CHARGE.limit, f"bucket:{{{c}}}:page:x") for c in "abc"])
        store.close()
    finally:
        cluster.stop()


def test_a_name_that_is_nowhere_is_an_outage() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        service = Service(f"redis://127.0.0.1:{probe.getsockname()[1]}")
        assert service.get().status == 200
        assert service.health().state == "degraded"
        assert service.health().reason
        service.close()
