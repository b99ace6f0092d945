"""The servers of the tests: up when they answer, and gone when they cannot."""

from __future__ import annotations

import pytest
import redis

from tests.servers import Server, valkey_binary


def test_a_server_with_a_password_is_up_once_it_asks_for_it() -> None:
    server = Server(valkey_binary(), "--requirepass", "secret").start()
    try:
        with redis.Redis(port=server.port, password="secret") as client:
            assert client.ping()
    finally:
        server.stop()


def test_a_server_that_cannot_start_leaves_no_process() -> None:
    server = Server(valkey_binary(), "--no-such-option", "1")
    with pytest.raises(RuntimeError, match="does not answer"):
        server.start()
    assert server.process is None
    server.stop()
