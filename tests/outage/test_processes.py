"""Gunicorn's workers: nothing is shared after a fork, and nothing is left behind."""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.servers import Server, free_port, missing

WORKERS, POOL = 2, 3

#: Seconds until something is surely wrong.
PATIENCE = 60


class Site:
    """The test's application under gunicorn."""

    def __init__(self, port: int, process: subprocess.Popen[bytes], log: Path, redis: Server):
        self.port, self.process, self._log, self._redis = port, process, log, redis

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def get(self) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("GET", "/", headers={"Connection": "close"})
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def load(self, requests: int, at_once: int) -> Counter[int]:
        with ThreadPoolExecutor(at_once) as pool:
            answers = pool.map(lambda _: self.get(), range(requests))
            return Counter(status for status, _ in answers)

    def connections(self) -> int:
        """How many connections to the server there are, apart from the one that asks."""
        with self._redis.client() as admin:
            mine = admin.client_id()
            return sum(int(client["id"]) != mine for client in admin.client_list())

    def booted(self) -> list[str]:
        return re.findall(r"Booting worker with pid: (\d+)", self.log)

    def wait_for(self, what: str, holds: object) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():  # type: ignore[operator]
            assert time.monotonic() < deadline, f"{what} did not happen:\n{self.log}"
            time.sleep(0.05)


@contextmanager
def serving(redis: Server, folder: Path, *options: str) -> Iterator[Site]:
    port, log = free_port(), folder / "log"
    command = [sys.executable, "-m", "gunicorn", "tests.outage.app:app", f"-b127.0.0.1:{port}"]
    command += [f"-w{WORKERS}", "--graceful-timeout=2", "--no-control-socket", *options]
    environment = {
        **os.environ,
        "FLASK_BUCKET_REDIS_URL": redis.url,
        "FLASK_BUCKET_MAX_CONNECTIONS": str(POOL),
        "FLASK_BUCKET_TIMEOUT": "5",
        "FLASK_BUCKET_REFUSAL_CACHE": "0",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    site = Site(port, process, log, redis)
    try:
        site.wait_for("booting", lambda: len(site.booted()) >= WORKERS)
        yield site
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


MODELS = [
    ("sync", ()),
    ("sync", ("--preload",)),
    ("gthread", ("--threads=8",)),
    ("gthread", ("--threads=8", "--preload")),
    ("gevent", ()),
    ("gevent", ("--preload",)),
]


@pytest.mark.parametrize(
    ("model", "options"), MODELS, ids=[" ".join((m, *o)).replace("--", "") for m, o in MODELS]
)
def test_workers_come_and_go_and_leave_nothing(
    model: str, options: tuple[str, ...], own_server: Server, tmp_path: Path
) -> None:
    if model == "gevent" and importlib.util.find_spec("gevent") is None:
        missing("gevent")
    most = WORKERS * POOL + 1
    with serving(own_server, tmp_path, f"-k{model}", "--max-requests=70", *options) as site:
        # Of 200 requests, each worker serves more than 70 and is replaced on the way.
        assert site.load(200, at_once=16) == {200: 100, 429: 100}
        site.wait_for("a restart", lambda: len(site.booted()) > WORKERS)
        site.wait_for("the end of old connections", lambda: site.connections() <= most)

        booted = len(site.booted())
        site.process.send_signal(signal.SIGHUP)
        site.wait_for("a reload", lambda: len(site.booted()) >= booted + WORKERS)
        assert site.load(40, at_once=16) == {429: 40}
        site.wait_for("the end of old connections", lambda: site.connections() <= most)

        site.process.send_signal(signal.SIGTERM)
        site.process.wait(PATIENCE)
        site.wait_for("the end of all connections", lambda: site.connections() == 0)
        assert "out of reach" not in site.log
        assert "Traceback" not in site.log
