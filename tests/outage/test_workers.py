"""Kinds of workers: whatever they do to threads, sockets and forks, the limits hold."""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.servers import Server, free_port, missing

#: Seconds until something is surely wrong.
PATIENCE = 60

APP = "tests.outage.five:app"
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
            kind if kind in ("gevent", "eventlet") else "gunicorn",
            (*GUNICORN, f"-k{kind}", *preload.split()),
        )
        for kind in ("sync", "gthread", "gevent", "eventlet")
        for preload in ("", " --preload")
    },
}


def status(port: int) -> int | None:
    """Return the status of an answer, or None if nobody listens yet."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", "/", headers={"Connection": "close"})
        return connection.getresponse().status
    except ConnectionRefusedError:
        return None
    finally:
        connection.close()


@contextmanager
def serving(kind: str, redis: Server, log: Path) -> Iterator[int]:
    """Serve the application, and yield the port."""
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
    }
    arguments = [str(program), *(part.format(port=port) for part in command[1:])]
    with log.open("wb") as output:
        process = subprocess.Popen(
            arguments, stdout=output, stderr=output, env={**os.environ, **settings}
        )
    try:
        yield port
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        process.wait()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_worker_grants_five_of_twelve(
    kind: str, own_server: Server, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with serving(kind, own_server, log) as port:
        deadline = time.monotonic() + PATIENCE
        while (first := status(port)) is None:
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(0.05)
        answers = Counter([first, *(status(port) for _ in range(11))])
    assert answers == {200: 5, 429: 7}, log.read_text(errors="replace")
    assert "out of reach" not in log.read_text(errors="replace")


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
