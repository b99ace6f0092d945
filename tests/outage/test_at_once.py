"""Requests at once over four workers, of which one is killed every second."""

from __future__ import annotations

import http.client
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from flask_bucket.keys import Spelling, ending
from tests.servers import Server, free_port, missing

#: Seconds until something is surely wrong.
PATIENCE = 60

CLIENTS, SLOTS, KILLS = 50, 3, 4

#: Seconds that a view takes, and those after which its slot is free in any case.
SECONDS, HOLDS = 0.05, 1.0

WORKERS = {
    "gthread": ("-kgthread", "--threads=16"),
    "gevent": ("-kgevent",),
    "sync": ("-ksync",),
}
KEY = Spelling("bucket").start("everybody") + ending("export", "at-once", "slot")


@dataclass(frozen=True, slots=True)
class Served:
    """Four workers, and what their views wrote down."""

    port: int
    master: subprocess.Popen[bytes]
    log: Path

    def status(self, path: str = "/") -> int:
        """Send a request, and return its status; 0 if it got no answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("GET", path, headers={"Connection": "close"})
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def workers(self) -> list[int]:
        pid = self.master.pid
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def serving(kind: str, redis: Server, folder: Path, **settings: str) -> Iterator[Served]:
    if importlib.util.find_spec("gevent" if kind == "gevent" else "gunicorn") is None:
        missing("gevent" if kind == "gevent" else "gunicorn")
    served_log, port = folder / "views", free_port()
    settings = {
        "FLASK_BUCKET_REDIS_URL": redis.url,
        "FLASK_BUCKET_TIMEOUT": "5.0",
        "FLASK_BUCKET_ON_ERROR": "deny",
        "INFLIGHT": str(served_log),
        "SECONDS": str(SECONDS),
        "HOLDS": str(HOLDS),
        **settings,
    }
    command = [
        *(sys.executable, "-m", "gunicorn", "tests.outage.inflight:app", "-w4"),
        "--preload",  # a worker that is killed is replaced at once, by a fork
        *(f"-b127.0.0.1:{port}", "--no-control-socket", "--graceful-timeout=1", *WORKERS[kind]),
    ]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, env=os.environ | settings, stdout=log, stderr=log)
    served = Served(port, server, served_log)
    try:
        until = time.monotonic() + PATIENCE
        while served.status("/nowhere") != 404:
            assert server.poll() is None, (folder / "server.log").read_text()
            assert time.monotonic() < until, "the workers did not start"
            time.sleep(0.05)
        yield served
    finally:
        server.terminate()
        server.wait(PATIENCE)


def held(redis: Server) -> int:
    """Return how many slots are held, by the server's clock."""
    with redis.client() as client:
        seconds, microseconds = client.time()
        return int(client.zcount(KEY, seconds * 1_000_000 + microseconds + 1, "+inf"))


def seconds_held(redis: Server) -> float:
    """Return for how long the last slot is held from now, by the server's clock."""
    with redis.client() as client:
        seconds, microseconds = client.time()
        ((_, free),) = client.zrange(KEY, -1, -1, withscores=True)
        return (int(free) - int(seconds) * 1_000_000 - int(microseconds)) / 1_000_000


def until_free(redis: Server) -> None:
    """Wait until no slot is held."""
    began = time.monotonic()
    while held(redis):
        assert time.monotonic() < began + PATIENCE, "a slot is still held"
        time.sleep(0.01)


def busy(served: Served) -> int:
    """Return a worker that runs a view: the one whose view began last."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        running: dict[str, int] = {}
        for line in served.log.read_text().splitlines():
            event, name, pid, _ = line.split()
            if event == "began":
                running[name] = int(pid)
            elif event == "ended":
                del running[name]
        alive = set(served.workers())
        if found := [pid for pid in running.values() if pid in alive]:
            return found[-1]
        time.sleep(0.005)
    raise AssertionError("no worker runs a view")


def overlap(log: Path, killed: dict[int, int]) -> tuple[int, int]:
    """Return how many views ran at the same time at most, and how many were killed.

    A view counts from its first line to its last one, or until its worker was killed; but no
    longer than its slot is held, which began no earlier than its request arrived.
    """
    arrived: dict[str, int] = {}
    running: dict[str, tuple[int, int]] = {}
    ended: dict[str, int] = {}
    for line in log.read_text().splitlines():
        event, name, pid, time_of = line.split()
        if event == "arrived":
            arrived[name] = int(time_of)
        elif event == "began":
            running[name] = int(pid), int(time_of)
        else:
            ended[name] = int(time_of)
    changes = []
    for name, (worker, began) in running.items():
        end = ended.get(name) or killed[worker]
        end = min(end, arrived[name] + int(HOLDS * 1e9))
        changes += [(began, 1), (max(began, end), -1)]
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most, len(running) - len(ended)


@pytest.mark.parametrize("kind", WORKERS)
def test_workers_that_are_killed_never_let_too_many_views_run(
    kind: str, own_server: Server, tmp_path: Path
) -> None:
    statuses: list[int] = []
    over = threading.Event()
    killed: dict[int, int] = {}

    with serving(kind, own_server, tmp_path) as served:

        def ask() -> None:
            while not over.is_set():
                status = served.status()
                statuses.append(status)
                over.wait(0.02 if status == 429 else 0)

        clients = [threading.Thread(target=ask) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        for _ in range(KILLS):
            time.sleep(1)
            pid = busy(served)
            os.kill(pid, signal.SIGKILL)
            killed[pid] = time.monotonic_ns()
        over.set()
        for client in clients:
            client.join()
        until_free(own_server)
        assert served.status() == 200

    most, lost = overlap(served.log, killed)
    assert most == SLOTS
    assert {200} <= {*statuses} <= {0, 200, 429, 503}  # 0: killed; 503: just started
    assert lost, "no worker was killed while a view ran"


def test_a_killed_worker_costs_its_slots_for_their_time(own_server: Server, tmp_path: Path) -> None:
    with serving("gthread", own_server, tmp_path, SECONDS="60", HOLDS="2") as served:
        clients = [threading.Thread(target=served.status) for _ in range(SLOTS)]
        for client in clients:
            client.start()
        began = time.monotonic()
        while held(own_server) < SLOTS:
            assert time.monotonic() < began + PATIENCE
        assert served.status() == 429
        for pid in served.workers():
            os.kill(pid, signal.SIGKILL)
        assert seconds_held(own_server) <= 2
        for client in clients:
            client.join()
        until_free(own_server)


@pytest.mark.parametrize("path", ["/stream", "/file"])
@pytest.mark.parametrize("kind", WORKERS)
def test_a_download_that_is_abandoned_frees_its_slot(
    kind: str, path: str, own_server: Server, tmp_path: Path
) -> None:
    """A file too, which the server sends by its own means, and which no socket buffers whole."""
    big = tmp_path / "file"
    with big.open("wb") as file:
        file.write(b"." * 10)
        file.truncate(1 << 30)
    settings = {"HOLDS": "3600", "FILE": str(big)}
    with serving(kind, own_server, tmp_path, **settings) as served:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE)
        connection.request("GET", path)
        response = connection.getresponse()
        assert response.read(10) == b"." * 10
        assert held(own_server) == 1
        connection.close()
        response.close()
        until_free(own_server)
