"""Kinds of workers: whatever they do to threads, sockets and forks, the limits hold."""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.outage.proxy import Proxy
from tests.outage.service import Stalls, at_once
from tests.outage.table import Row
from tests.servers import Server, free_port, missing

#: Seconds until something is surely wrong.
PATIENCE = 60

#: How often the test of a reload begins anew, at most.
TRIES = 4

APP = "tests.outage.limited:app"
GUNICORN = ("gunicorn", APP, "-b127.0.0.1:{port}", "-w2", "--no-control-socket")
UWSGI = ("uwsgi", "--http-socket=127.0.0.1:{port}", f"--module={APP}", "--master", "--die-on-term")

#: The package that a kind needs, and its command.
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "flask run": ("flask", ("flask", "--app", APP, "run", "--port={port}")),
    "waitress": ("waitress", ("waitress-serve", "--listen=127.0.0.1:{port}", APP)),
    "uwsgi": ("uwsgi", (*UWSGI, "--processes=2")),
    "uwsgi lazy": ("uwsgi", (*UWSGI, "--processes=2", "--lazy-apps")),
    "uwsgi threads": ("uwsgi", (*UWSGI, "--processes=2", "--enable-threads", "--threads=2")),
    **{
        f"gunicorn {kind}{preload}": (
            "gevent" if kind == "gevent" else "gunicorn",
            (*GUNICORN, f"-k{kind}", *preload.split()),
        )
        for kind in ("sync", "gthread", "gevent")
        for preload in ("", " --preload")
    },
}


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def status(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", "/", headers={"Connection": "close"})
        return connection.getresponse().status
    finally:
        connection.close()


@contextmanager
def serving(
    kind: str, redis: Server, log: Path, **settings: str
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Serve the application, and yield the port once it listens, and the process."""
    package, command = KINDS[kind]
    program = Path(sys.executable).with_name(command[0])
    if importlib.util.find_spec(package) is None and not program.exists():
        missing(package)
    port = free_port()
    settings = {
        "FLASK_BUCKET_REDIS_URL": redis.url,
        "FLASK_BUCKET_TIMEOUT": "5.0",
        "FLASK_BUCKET_CONNECT_TIMEOUT": "10.0",
        "FLASK_BUCKET_ON_ERROR": "deny",
        "PYTHONWARNINGS": "ignore",
        **settings,
    }
    arguments = [str(program), *(part.format(port=port) for part in command[1:])]
    with log.open("wb") as output:
        process = subprocess.Popen(
            arguments,
            stdout=output,
            stderr=output,
            env={**os.environ, **settings},
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while not listens(port):
            assert process.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(0.05)
        yield port, process
    finally:
        # With its workers. uWSGI's would wait for a minute if they were still importing.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_worker_grants_five_of_twelve(
    kind: str, own_server: Server, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with serving(kind, own_server, log) as (port, _):
        answers = Counter(status(port) for _ in range(12))
    assert answers == {200: 5, 429: 7}, log.read_text(errors="replace")
    assert "out of reach" not in log.read_text(errors="replace")


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer that a client of the application saw."""

    #: The worker's process, and the seconds from its first request.
    worker: str
    age: float
    decided_by_store: bool


def answer(port: int) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", "/", headers={"Connection": "close"})
        response = connection.getresponse()
        worker, age = response.read().decode().split()
        decided = response.getheader("X-RateLimit-Remaining") is not None
        return Answer(worker, float(age), decided)
    finally:
        connection.close()


@contextmanager
def busy_processors() -> Iterator[None]:
    """Keep all processors at work."""
    command = [sys.executable, "-c", "while True: pass"]
    burning = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


@pytest.mark.timeout(TRIES * PATIENCE)
@pytest.mark.parametrize("kind", ["gunicorn gevent", "gunicorn gthread"])
def test_a_reload_under_load_lets_nobody_pass_after_the_first_second(
    kind: str, own_server: Server, tmp_path: Path, table: list[Row], stalls: Stalls
) -> None:
    """A worker that begins under load connects slowly, and nothing is wrong.

    A machine that is busy beyond the load of this test gets further tries.
    """
    for number in range(TRIES):
        answers = answers_during_a_reload(kind, own_server, tmp_path / f"log {number}")
        undecided = [one for one in answers if not one.decided_by_store]
        late = [one for one in undecided if one.age > 1]
        if not late:
            break
    assert not late or stalls.count, late
    saw = f"{len(answers) - len(undecided)} x 200"
    if undecided:
        saw += f", {len(undecided)} x 200 without rate headers"
    table.append(Row(f"reload under load ({kind})", "allow", saw, None, None, "exact"))


def answers_during_a_reload(kind: str, server: Server, log: Path) -> list[Answer]:
    """Reload two workers under load, and return all answers."""
    usual = {"FLASK_BUCKET_TIMEOUT": "0.1", "FLASK_BUCKET_CONNECT_TIMEOUT": "2.0"}
    settings = {**usual, "FLASK_BUCKET_ON_ERROR": "allow", "LIMIT": "1000000/hour"}
    answers, over = list[Answer](), threading.Event()

    def load(port: int) -> None:
        while not over.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                answers.append(answer(port))  # a worker that ends may cut an answer

    def wait_for_workers(number: int) -> None:
        """Wait until so many have served a request for longer than a second."""
        deadline = time.monotonic() + PATIENCE
        while len({one.worker for one in tuple(answers) if one.age > 1}) < number:
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(0.05)

    def reload(process: subprocess.Popen[bytes]) -> None:
        try:
            wait_for_workers(2)
            process.send_signal(signal.SIGHUP)
            wait_for_workers(4)
        finally:
            over.set()

    with serving(kind, server, log, **settings) as (port, process), busy_processors():
        at_once(partial(reload, process), *[partial(load, port)] * 12)
    return answers


def test_threads_that_rest_between_requests_connect_in_the_end(
    own_server: Server, tmp_path: Path
) -> None:
    """uWSGI without --enable-threads: the thread that connects runs only while a request does."""
    log, decided = tmp_path / "log", False
    settings = {
        "FLASK_BUCKET_TIMEOUT": "0.1",
        "FLASK_BUCKET_CONNECT_TIMEOUT": "0.5",
        "FLASK_BUCKET_RECOVERY_INTERVAL": "0.2",
        "FLASK_BUCKET_ON_ERROR": "allow",
        "LIMIT": "1000000/hour",
    }
    with Proxy(own_server.port) as proxy:
        proxy.latency = 0.4  # of the answer to SELECT
        settings["FLASK_BUCKET_REDIS_URL"] = f"redis://127.0.0.1:{proxy.port}/1"
        with serving("uwsgi", own_server, log, **settings) as (port, _):
            for _ in range(20):
                assert not answer(port).decided_by_store
                time.sleep(0.05)  # of rest for the thread
            proxy.latency = 0
            deadline = time.monotonic() + PATIENCE / 2
            while not decided and time.monotonic() < deadline:
                decided = answer(port).decided_by_store
                time.sleep(0.05)
    assert decided, log.read_text(errors="replace")


PATCHED = """
import {package}
{before}
from flask import Flask
from flask_bucket import Limiter

app = Flask("patched")
app.config.update(
    BUCKET_REDIS_URL={url!r}, BUCKET_MAX_CONNECTIONS=2, BUCKET_TIMEOUT=5.0, BUCKET_ON_ERROR="deny"
)
app.add_url_rule("/", "index", Limiter(app).limit("20/day")(lambda: "fine"))
{used}
{after}
requests = [{spawn}(lambda: app.test_client().get("/").status_code) for _ in range(40)]
print(sorted({value}(request) for request in requests))
"""

PATCHES = {
    "gevent": {
        "package": "gevent.monkey",
        "patch": "gevent.monkey.patch_all()",
        "spawn": "gevent.spawn",
        "value": "gevent.Greenlet.get",
    },
    "eventlet": {
        "package": "eventlet",
        "patch": "eventlet.monkey_patch()",
        "spawn": "eventlet.spawn",
        "value": "eventlet.greenthread.GreenThread.wait",
    },
}


@pytest.mark.parametrize("when", ["before", "after", "after the first request"])
@pytest.mark.parametrize("library", PATCHES)
def test_the_standard_library_may_be_patched_at_any_time(
    library: str, when: str, own_server: Server
) -> None:
    """Requests that wait for a connection let the one that has it go on."""
    if importlib.util.find_spec(library) is None:
        missing(library)
    words = PATCHES[library]
    program = PATCHED.format(
        url=own_server.url,
        before=words["patch"] if when == "before" else "",
        after="" if when == "before" else words["patch"],
        used='app.test_client().get("/")' if when == "after the first request" else "",
        **words,
    )
    command = [sys.executable, "-W", "ignore", "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    granted = 19 if when == "after the first request" else 20
    assert ran.stdout == f"{granted * [200] + (40 - granted) * [429]}\n", ran.stderr
