"""The example app: alone, with a clock that the test moves, and served by gunicorn."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import pytest
import redis
from flask.testing import FlaskClient

from example_app import create_app
from example_app.settings import Settings
from flask_bucket import ConfigError
from tests.conftest import START
from tests.servers import Server

ROOT = Path(__file__).parent.parent
GUNICORN = (sys.executable, "-m", "gunicorn", "-c", "example_app/gunicorn.conf.py")
APP = "example_app.wsgi:app"
#: Seconds to wait on a busy machine before a test gives up.
PATIENCE = 30.0
#: Tokens a second, so few that none comes back during a test.
HARDLY_ANY = "0.000001"

T = TypeVar("T")


def clean_environment(**variables: str) -> dict[str, str]:
    """The environment without variables that configure the example, plus `variables`."""
    ours = re.compile("(FLASK|EXAMPLE|GUNICORN)_|WEB_CONCURRENCY|LISTEN_")
    kept = {name: value for name, value in os.environ.items() if not ours.match(name)}
    return {**kept, **variables}


# The app, without gunicorn


class Clock:
    """The time of the in-process store, in microseconds."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now

    def advance(self, *, ms: int) -> None:
        self.now += ms * 1000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("flask_bucket.stores.memory._monotonic_clock", lambda: clock)
    return clock


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Callable[..., FlaskClient]:
    """Make the app with environment variables, and return a client for it."""
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    # The refusal cache has another clock, which the test does not move.
    monkeypatch.setenv("FLASK_BUCKET_REFUSAL_CACHE", "0")

    def configured(**variables: str) -> FlaskClient:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return create_app().test_client()

    return configured


@pytest.fixture
def client(configure: Callable[..., FlaskClient]) -> FlaskClient:
    return configure()


def test_ten_requests_pass_and_the_eleventh_waits_half_a_second(
    client: FlaskClient, clock: Clock
) -> None:
    responses = [client.get("/test") for _ in range(10)]
    assert [r.status_code for r in responses] == [200] * 10
    assert [r.headers["X-RateLimit-Remaining"] for r in responses] == [*"9876543210"]
    assert {r.headers["X-RateLimit-Limit"] for r in responses} == {"10"}

    refused = client.get("/test")
    assert refused.status_code == 429
    assert refused.json == {"error": "Too Many Requests", "retryAfterMs": 500}
    assert refused.headers["Retry-After"] == "1"

    clock.advance(ms=499)
    assert client.get("/test").json == {"error": "Too Many Requests", "retryAfterMs": 1}
    clock.advance(ms=1)
    assert client.get("/test").status_code == 200


def test_two_tokens_a_second_come_back(client: FlaskClient, clock: Clock) -> None:
    drain(client, "/test", 10)
    clock.advance(ms=2000)
    drain(client, "/test", 4)


def test_the_limit_of_test_is_set_by_the_environment(
    configure: Callable[..., FlaskClient], clock: Clock
) -> None:
    client = configure(EXAMPLE_CAPACITY="3", EXAMPLE_REFILL_RATE="5/3600")
    drain(client, "/test", 3)
    refused = client.get("/test")
    assert refused.json == {"error": "Too Many Requests", "retryAfterMs": 720_000}
    clock.advance(ms=720_000)
    drain(client, "/test", 1)


def test_search_allows_a_burst_and_then_five_a_second(client: FlaskClient, clock: Clock) -> None:
    drain(client, "/search?q=bucket", 20)
    clock.advance(ms=1000)
    drain(client, "/search?q=bucket", 5)


def test_two_reports_empty_a_bucket_of_ten(client: FlaskClient, clock: Clock) -> None:
    drain(client, "/report", 2)
    clock.advance(ms=4999)
    assert client.get("/report").status_code == 429
    clock.advance(ms=1)
    drain(client, "/report", 1)


def test_only_wrong_passwords_count(client: FlaskClient) -> None:
    right, wrong = ({"name": "demo", "password": password} for password in ("demo", "guess"))
    for _ in range(20):
        assert client.post("/login", data=right).status_code == 200
    for _ in range(5):
        assert client.post("/login", data=wrong).status_code == 401
    assert client.post("/login", data=wrong).status_code == 429
    assert client.post("/login", data=right).status_code == 429


@pytest.mark.parametrize("data", [{}, {"name": "demo"}, {"name": "démo", "password": "\udc80"}])
def test_a_strange_login_is_a_wrong_one(client: FlaskClient, data: dict[str, str]) -> None:
    body = "&".join(f"{name}={value}" for name, value in data.items())
    response = client.post(
        "/login",
        data=body.encode("utf-8", "surrogateescape"),
        content_type="application/x-www-form-urlencoded",
    )
    assert response.status_code == 401


def test_health_checks_are_free_of_limits_for_all(configure: Callable[..., FlaskClient]) -> None:
    client = configure(
        FLASK_BUCKET_DEFAULT_LIMITS="1/hour", FLASK_BUCKET_APPLICATION_LIMITS="2/hour"
    )
    for _ in range(5):
        response = client.get("/healthz")
        assert response.status_code == 200
        assert "X-RateLimit-Limit" not in response.headers
    drain(client, "/search", 2)


def test_without_proxies_the_header_is_ignored(configure: Callable[..., FlaskClient]) -> None:
    client = configure(EXAMPLE_CAPACITY="2")
    statuses = [status_for(client, f"192.0.2.{n}") for n in range(3)]
    assert statuses == [200, 200, 429]


def test_behind_a_proxy_clients_are_told_apart(configure: Callable[..., FlaskClient]) -> None:
    client = configure(EXAMPLE_CAPACITY="1", EXAMPLE_TRUSTED_PROXIES="1")
    assert status_for(client, "192.0.2.1") == 200
    assert status_for(client, "192.0.2.1") == 429
    assert status_for(client, "192.0.2.2") == 200


def test_what_a_client_puts_before_the_proxys_address_is_not_believed(
    configure: Callable[..., FlaskClient],
) -> None:
    client = configure(EXAMPLE_CAPACITY="1", EXAMPLE_TRUSTED_PROXIES="1")
    assert status_for(client, "198.51.100.1, 192.0.2.1") == 200
    assert status_for(client, "198.51.100.2, 192.0.2.1") == 429


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("EXAMPLE_TRUSTED_PROXIES", "two"),
        ("EXAMPLE_TRUSTED_PROXIES", "-1"),
        ("EXAMPLE_TRUSTED_PROXIES", "1.5"),
        ("EXAMPLE_TRUSTED_PROXIES", "²"),
        ("EXAMPLE_CAPACITY", "0"),
        ("EXAMPLE_CAPACITY", "ten"),
        ("EXAMPLE_CAPACITY", "2.5"),
        ("EXAMPLE_REFILL_RATE", "0"),
        ("EXAMPLE_REFILL_RATE", "-2"),
        ("EXAMPLE_REFILL_RATE", "nan"),
        ("EXAMPLE_REFILL_RATE", "1/0"),
    ],
)
def test_a_bad_setting_is_named_with_its_value(variable: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{variable}={re.escape(value)}"):
        Settings.from_environment({variable: value})


def test_an_empty_setting_is_the_default() -> None:
    empty = {
        "EXAMPLE_CAPACITY": "",
        "EXAMPLE_REFILL_RATE": "",
        "EXAMPLE_TRUSTED_PROXIES": "",
    }
    assert Settings.from_environment(empty) == Settings.from_environment({})


def drain(client: FlaskClient, path: str, requests: int) -> None:
    """Send this number of requests, which must be allowed, and one that must be refused."""
    assert [client.get(path).status_code for _ in range(requests)] == [200] * requests
    assert client.get(path).status_code == 429


def status_for(client: FlaskClient, forwarded_for: str) -> int:
    return client.get("/test", headers={"X-Forwarded-For": forwarded_for}).status_code


# Served by gunicorn


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Message
    body: Any

    @property
    def worker(self) -> int:
        return int(self.headers["X-Served-By"])

    @property
    def remaining(self) -> int:
        return int(self.headers["X-RateLimit-Remaining"])


class Example:
    """The example under gunicorn, with its own temporary folder."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        self.log: list[str] = []
        self.process = subprocess.Popen(
            [*GUNICORN, APP],
            cwd=ROOT,
            env=clean_environment(
                EXAMPLE_BIND="127.0.0.1:0",
                TMPDIR=str(folder),
                FLASK_BUCKET_TIMEOUT=str(PATIENCE),  # a busy machine is not an outage
                **variables,
            ),
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        #: Ends when the last process that may write to the log has ended: master, workers, and
        #: the one that keeps Valkey.
        self.reader = Thread(target=self._read_log, daemon=True)
        self.reader.start()

    @property
    def port(self) -> int:
        return int(self.logged(r"Listening at: http://127\.0\.0\.1:(\d+)"))

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr:
            self.log.extend(iter(self.process.stderr.readline, ""))

    def logged(self, pattern: str) -> str:
        """Wait for a line of the log, and return the match of the pattern's group."""

        def search() -> re.Match[str] | None:
            assert self.process.poll() is None, "".join(self.log)
            return re.search(pattern, "".join(self.log))

        return eventually(search)[1]

    def get(self, path: str, forwarded_for: str | None = None) -> Response:
        """Send a request on a new connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            headers = {"X-Forwarded-For": forwarded_for} if forwarded_for else {}
            connection.request("GET", path, headers={"Connection": "close", **headers})
            response = connection.getresponse()
            return Response(response.status, response.headers, json.loads(response.read()))
        finally:
            connection.close()

    def get_at_once(self, requests: int, path: str, client: str | None = None) -> list[Response]:
        with ThreadPoolExecutor(requests) as pool:
            return list(pool.map(lambda _: self.get(path, client), range(requests)))

    def workers(self, number: int, other_than: frozenset[int] = frozenset()) -> frozenset[int]:
        """Wait until this number of workers has answered, and none of `other_than`."""
        seen: set[int] = set()

        def answered() -> frozenset[int] | None:
            try:
                now = {response.worker for response in self.get_at_once(8, "/healthz")}
            except (OSError, http.client.HTTPException):
                return None  # a worker was just ending
            seen.update(now)
            found = frozenset(seen - other_than)
            return found if len(found) >= number and not now & other_than else None

        return eventually(answered)

    @contextmanager
    def valkey(self) -> Iterator[redis.Redis]:
        url = self.logged(r"Embedded Valkey at: (\S+)")
        with redis.Redis.from_url(url, socket_timeout=PATIENCE) as client:
            client.ping()
            yield client

    def is_gone(self) -> bool:
        """Whether every process has ended and nothing is left in the temporary folder."""
        return (
            self.process.poll() is not None
            and not self.reader.is_alive()
            and not any(self.folder.iterdir())
        )

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()
        self.reader.join(PATIENCE)


def eventually(found: Callable[[], T | None]) -> T:
    """Return the first true result of `found`. Fail if it never returns one."""
    deadline = time.monotonic() + PATIENCE
    while not (result := found()):
        assert time.monotonic() < deadline, f"{found} never came true"
        time.sleep(0.02)
    return result


@contextmanager
def served(**variables: str) -> Iterator[Example]:
    # Not pytest's folder: the path of a unix socket must be short.
    with tempfile.TemporaryDirectory(prefix="example-") as folder:
        example = Example(Path(folder), **variables)
        try:
            yield example
        finally:
            example.stop()


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
