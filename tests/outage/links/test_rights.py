"""Users with few rights."""

from __future__ import annotations

import pytest

from flask_bucket.decisions import Charge
from flask_bucket.errors import StoreUnavailable
from flask_bucket.stores.redis import RedisStore
from tests.outage.links.conftest import CHARGE
from tests.servers import ENGINES, Cluster, Server, TlsServer, valkey_binary

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
