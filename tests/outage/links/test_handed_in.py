"""Clients of redis-py that are handed in."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from flask_bucket.stores.redis import RedisStore
from tests.outage.links.conftest import CHARGE
from tests.servers import Server


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
