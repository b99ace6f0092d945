"""The example app, as gunicorn serves it, and its environment."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
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

import redis

ROOT = Path(__file__).parents[2]
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
