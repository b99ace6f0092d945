"""The example app, served by gunicorn."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.example_app.served import (
    APP,
    GUNICORN,
    HARDLY_ANY,
    PATIENCE,
    ROOT,
    Example,
    clean_environment,
    eventually,
    served,
)
from tests.servers import Server


@pytest.fixture(scope="module")
def example() -> Iterator[Example]:
    """The example, with a refill so slow that no token comes back during a test."""
    with served(EXAMPLE_REFILL_RATE=HARDLY_ANY) as example:
        example.workers(4)
        yield example


@pytest.fixture(scope="module")
def five_an_hour() -> Iterator[Example]:
    """A bucket of five for each address that a proxy passes on."""
    with served(
        EXAMPLE_CAPACITY="5", EXAMPLE_REFILL_RATE="5/3600", EXAMPLE_TRUSTED_PROXIES="1"
    ) as example:
        example.workers(4)
        yield example


def test_eleven_requests_empty_one_bucket_whichever_workers_answer(example: Example) -> None:
    *allowed, refused = [example.get("/test") for _ in range(11)]
    assert [r.status for r in allowed] == [200] * 10
    assert [r.remaining for r in allowed] == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert refused.status == 429
    assert refused.headers["Retry-After"] == "1000000"
    assert refused.body["error"] == "Too Many Requests"
    assert 999_000_000 < refused.body["retryAfterMs"] <= 1_000_000_000
    # A forged header does not help the client.
    assert example.get("/test", forwarded_for="192.0.2.1").status == 429


def test_forty_requests_at_once_get_five_tokens(five_an_hour: Example) -> None:
    clients = (f"198.51.100.{n}" for n in range(256))

    def several_workers_gave_five() -> bool:
        responses = five_an_hour.get_at_once(40, "/test", next(clients))
        assert sorted(r.status for r in responses) == [200] * 5 + [429] * 35
        allowed = [r for r in responses if r.status == 200]
        assert sorted(r.remaining for r in allowed) == [0, 1, 2, 3, 4]
        return len({r.worker for r in allowed}) > 1

    eventually(several_workers_gave_five)


def test_clients_behind_a_proxy_have_their_own_buckets(five_an_hour: Example) -> None:
    first = [five_an_hour.get("/test", "192.0.2.1").remaining for _ in range(3)]
    assert first == [4, 3, 2]
    assert five_an_hour.get("/test", "192.0.2.2").remaining == 4
    assert five_an_hour.get("/test", "198.51.100.7, 192.0.2.1").remaining == 1


def test_a_killed_worker_takes_neither_the_server_nor_the_buckets(five_an_hour: Example) -> None:
    with five_an_hour.valkey() as valkey:
        assert five_an_hour.get("/test", "192.0.2.3").remaining == 4
        killed = five_an_hour.get("/healthz").worker
        os.kill(killed, signal.SIGKILL)
        five_an_hour.workers(4, other_than=frozenset({killed}))
        assert five_an_hour.get("/test", "192.0.2.3").remaining == 3
        assert valkey.ping()


def test_a_worker_that_ends_by_itself_does_not_stop_the_server(five_an_hour: Example) -> None:
    with five_an_hour.valkey() as valkey:
        ended = five_an_hour.get("/healthz").worker
        os.kill(ended, signal.SIGTERM)  # as after max_requests: through sys.exit and its handlers
        five_an_hour.workers(4, other_than=frozenset({ended}))
        assert valkey.ping()


def test_a_reload_keeps_the_buckets_and_a_stop_after_it_leaves_nothing() -> None:
    with (
        served(WEB_CONCURRENCY="2", EXAMPLE_REFILL_RATE=HARDLY_ANY) as example,
        example.valkey() as valkey,
    ):
        before = example.workers(2)
        assert example.get("/test").remaining == 9
        example.process.send_signal(signal.SIGHUP)
        example.workers(2, other_than=before)
        assert example.get("/test").remaining == 8
        assert valkey.ping()

        example.process.send_signal(signal.SIGTERM)
        assert example.process.wait(PATIENCE) == 0
        assert not any(example.folder.iterdir())
        eventually(example.is_gone)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_however_the_master_ends_it_leaves_nothing(signum: signal.Signals) -> None:
    with served(WEB_CONCURRENCY="2") as example, example.valkey() as valkey:
        assert example.get("/test").remaining == 9
        assert any(example.folder.iterdir())

        if signum == signal.SIGINT:  # Ctrl-C in a terminal reaches the whole group
            os.killpg(example.process.pid, signum)
        else:
            example.process.send_signal(signum)

        if signum == signal.SIGKILL:
            assert example.process.wait(PATIENCE) == -signal.SIGKILL
        else:
            assert example.process.wait(PATIENCE) == 0
            assert not any(example.folder.iterdir())  # removed before the master ended
        eventually(example.is_gone)
        with pytest.raises(redis.ConnectionError):
            valkey.ping()


def test_gunicorn_ends_with_clear_words_if_valkey_is_killed() -> None:
    with served(WEB_CONCURRENCY="2") as example:
        with example.valkey() as valkey:
            number = valkey.info("server")["process_id"]
        os.kill(number, signal.SIGKILL)
        assert example.process.wait(PATIENCE) == 0
        eventually(example.is_gone)
        said = f"Valkey has ended by itself, so process {example.process.pid} is ended."
        assert said in "".join(example.log)


def test_a_server_of_ones_own_is_used_instead(valkey: Server) -> None:
    with served(WEB_CONCURRENCY="1", FLASK_BUCKET_REDIS_URL=valkey.url) as example:
        assert example.get("/test").status == 200
        with valkey.client() as client:
            assert client.keys() == [b"bucket:{127.0.0.1}:test:per-second"]
        assert not any(example.folder.iterdir())
        assert "Embedded Valkey" not in "".join(example.log)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("EXAMPLE_TRUSTED_PROXIES", "two", "EXAMPLE_TRUSTED_PROXIES=two: expected"),
        ("FLASK_BUCKET_ON_EROR", "allow", "BUCKET_ON_EROR .* Did you mean BUCKET_ON_ERROR?"),
        ("WEB_CONCURRENCY", "0", "WEB_CONCURRENCY=0: expected"),
        ("GUNICORN_CMD_ARGS", "--preload", "--preload .* Leave it out"),
    ],
)
def test_a_bad_setting_is_one_line_and_no_start(variable: str, value: str, said: str) -> None:
    assert re.search(said, refusal_to_start(**{variable: value}))


def test_a_port_in_use_is_one_line_and_no_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refusal_to_start(EXAMPLE_BIND=address)
    assert said.startswith(f"Cannot listen at {address}: Address already in use.")


def test_a_valkey_that_does_not_start_is_one_line_and_no_start() -> None:
    with tempfile.TemporaryDirectory(prefix="example-") as folder:
        long = Path(folder) / ("x" * 100)
        long.mkdir()
        said = refusal_to_start(TMPDIR=str(long))
        assert re.match("The embedded Valkey did not start: .* too long .* Set TMPDIR", said)
        assert not any(long.iterdir())


def refusal_to_start(**variables: str) -> str:
    """Start the example, which must fail. Return the only line that is not gunicorn's own."""
    ended = subprocess.run(
        [*GUNICORN, APP],
        cwd=ROOT,
        env=clean_environment(**{"EXAMPLE_BIND": "127.0.0.1:0", **variables}),
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode not in (0, None)
    lines = [line for line in ended.stderr.splitlines() if line and "[INFO]" not in line]
    assert len(lines) == 1, ended.stderr
    return lines[0]
