"""The URLs that lead to a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from flask_bucket import ConfigError
from flask_bucket.stores.redis import RedisStore
from flask_bucket.stores.redis.urls import place
from tests.outage.links.conftest import CHARGE
from tests.servers import Server, valkey_binary

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
