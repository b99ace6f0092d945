"""Connections over TLS."""

from __future__ import annotations

import os
import time

import pytest

from flask_bucket.errors import StoreUnavailable
from flask_bucket.stores.redis import RedisStore
from tests.outage.links.conftest import CHARGE
from tests.outage.proxy import Proxy
from tests.outage.service import ORDINARY, Service, Stalls
from tests.servers import Server, TlsServer
from tests.test_forks import in_child


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
            f"rediss://localhost:{proxy.port}",
            timeout=10,
            connect_timeout=10,
            ssl_ca_certs=str(tls_server.ca),
        )
        assert store.take([CHARGE]).outcomes[0].remaining == 4
        assert in_child(lambda: store.take([CHARGE]).outcomes[0].remaining == 3)
        assert store.take([CHARGE]).outcomes[0].remaining == 2
        assert proxy.begun == 2, "the parent's own, and the child's own"
        store.close()
