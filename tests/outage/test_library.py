"""The parts of redis-py that it does not promise: each is there, and does what it is used for."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection
from redis.retry import Retry

from flask_bucket.stores.redis import library
from tests.servers import Cluster, valkey_binary

KINDS: dict[type[Any], dict[str, str]] = {
    redis.Connection: {"host": "h"},
    redis.SSLConnection: {"host": "h"},
    redis.UnixDomainSocketConnection: {"path": "/s"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_connection_object_has_the_attributes_that_are_read(kind: type[Any]) -> None:
    options = kind(**KINDS[kind])
    for of, names in library.ATTRIBUTES.items():
        if isinstance(options, of):
            lacking = [name for name in names if not hasattr(options, name)]
            assert not lacking, f"redis-py {redis.__version__}: {of.__name__} lacks {lacking}"


def test_a_connection_object_connects_only_when_it_is_told_to() -> None:
    assert isinstance(redis.Connection(host="nowhere.invalid"), AbstractConnection)  # type: ignore[no-untyped-call]


def test_a_url_is_read_into_the_arguments_of_a_connection() -> None:
    settings = library.url_settings("rediss://me:word@h:1/2?ssl_cert_reqs=none")
    assert settings.pop("connection_class") is redis.SSLConnection
    assert settings == {
        **{"username": "me", "password": "word", "host": "h", "port": 1, "db": 2},
        "ssl_cert_reqs": "none",
    }


def test_the_options_of_tls_become_a_context() -> None:
    checked = library.tls_context(redis.SSLConnection(host="h", ssl_check_hostname=True))
    free = library.tls_context(redis.SSLConnection(host="h", ssl_cert_reqs="none"))
    assert (checked.check_hostname, free.check_hostname) == (True, False)
    with pytest.raises(OSError, match="No such file"):
        library.tls_context(redis.SSLConnection(host="h", ssl_ca_certs="/missing.pem"))


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("NOSCRIPT No matching script", exceptions.NoScriptError),
        ("READONLY You can't write", exceptions.ReadOnlyError),
        ("MOVED 1 127.0.0.1:7000", exceptions.MovedError),
        ("ASK 1 127.0.0.1:7000", exceptions.AskError),
        ("TRYAGAIN Multiple keys", exceptions.TryAgainError),
        ("CLUSTERDOWN Hash slot not served", exceptions.ClusterDownError),
        ("NOPERM this user", exceptions.NoPermissionError),
        ("WRONGTYPE Operation", exceptions.ResponseError),
        *((text, exceptions.InvalidResponse) for text in ("MOVED", "ASK 1", "MOVED x y z")),
    ],
)
def test_an_error_reply_becomes_the_exception_it_names(reply: str, kind: type[Exception]) -> None:
    assert type(library.error_of(reply)) is kind


def test_the_retries_of_a_client_are_seen() -> None:
    never = redis.Redis(retry=Retry(NoBackoff(), 0))
    assert (library.retries_of(redis.Redis(retry=Retry(NoBackoff(), 3)))) == 3
    assert library.retries_of(never) == 0
    assert library.retries_of(redis.Redis(retry=Retry(NoBackoff(), -1))) < 0


def test_a_cluster_s_client_retries_unless_its_retry_says_otherwise() -> None:
    """The advice must be true of the client that it is given for."""
    cluster = Cluster(valkey_binary())
    try:
        port = cluster.start().nodes[0].port
        careful: dict[str, Any] = {"retry": Retry(NoBackoff(), 0)}
        if int(redis.__version__.split(".")[0]) < 6:
            careful["cluster_error_retry_attempts"] = 0
        for settings, retries in (({"retry": None}, True), (careful, False)):
            client = redis.RedisCluster("127.0.0.1", port, socket_timeout=1.5, **settings)
            assert bool(library.retries_of(client)) == retries
            assert library.options_of(client).socket_timeout == 1.5
            client.close()
    finally:
        cluster.stop()
