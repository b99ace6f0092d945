"""Leases of four real workers, on one real server."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from flask_bucket import Limit
from flask_bucket.stores.lease import PART
from tests.property.oracle import MICROSECONDS, Oracle
from tests.servers import Server, free_port

LIMIT = Limit.parse("60/second burst 160")
WORKERS, SECONDS, LEASE = 4, 4, 0.1

APPLICATION = f"""
import os
from flask import Flask
from flask_bucket import Limiter, Rule

app = Flask(__name__)
app.config.update(BUCKET_REDIS_URL=os.environ["URL"], BUCKET_TIMEOUT=5, BUCKET_WORKERS={WORKERS})
hot = Rule("{LIMIT}", lease={LEASE}, key_func=lambda: "all")
limiter = Limiter(app, application_limits=hot)

@app.get("/")
def index():
    return ""

@app.get("/up")
@limiter.exempt
def up():
    return ""
"""


@dataclass(frozen=True)
class Answer:
    begun: float
    ended: float
    status: int


@pytest.fixture
def port(tmp_path: Path, own_server: Server) -> Iterator[int]:
    """Where four workers of gunicorn answer."""
    (tmp_path / "served.py").write_text(APPLICATION)
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "--preload", "--no-control-socket"]
    command += ["-w", str(WORKERS), "-b", f"127.0.0.1:{port}"]
    environment = os.environ | {"URL": own_server.url}
    with (tmp_path / "log").open("wb") as log:
        master = subprocess.Popen(
            [*command, "served:app"], cwd=tmp_path, env=environment, stdout=log, stderr=log
        )
    deadline = time.monotonic() + 30
    while not _answers(port):
        assert time.monotonic() < deadline, (tmp_path / "log").read_text()
        time.sleep(0.05)
    yield port
    master.terminate()
    master.wait(30)


def _answers(port: int) -> bool:
    try:
        return get(port, "/up").status == 200
    except OSError:
        return False


def get(port: int, path: str = "/") -> Answer:
    begun = time.monotonic()
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
    return Answer(begun, time.monotonic(), response.status)


def offer(port: int, per_second: float | None) -> list[Answer]:
    """Send requests by four clients for some seconds: so many a second, or all that they can."""
    answers: list[Answer] = []
    begun = time.monotonic()

    def client(number: int) -> None:
        due = begun + (number / (per_second or 1))
        while time.monotonic() < begun + SECONDS:
            if per_second is not None:
                time.sleep(max(0.0, due - time.monotonic()))
                due += 4 / per_second
            answers.append(get(port))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def calls(server: Server) -> int:
    """Return how often the script was called."""
    with server.client() as client:
        stats = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))


def ideal(answers: list[Answer]) -> int:
    """Return how many of these requests one exact bucket would have granted."""
    arrivals = sorted(round(answer.ended * MICROSECONDS) for answer in answers)
    bucket, granted = Oracle(LIMIT.capacity, LIMIT.rate / MICROSECONDS, arrivals[0]), 0
    for at in arrivals:
        bucket.move(at)
        if bucket.level >= 1:
            bucket.level -= 1
            granted += 1
    return granted


def test_a_load_above_the_rate_is_granted_what_the_limit_grants(
    port: int, own_server: Server
) -> None:
    answers = offer(port, None)
    granted = [answer for answer in answers if answer.status == 200]
    if len(answers) < 1.2 * (LIMIT.capacity + LIMIT.rate * SECONDS):
        pytest.skip("this machine is too busy to offer more than the limit grants")
    longest = max(a.ended for a in answers) - min(a.begun for a in answers)
    most = LIMIT.capacity + float(LIMIT.rate) * longest
    held = LIMIT.capacity // PART
    assert len(granted) <= most + held
    # Tokens that are left in the end, in the bucket or with the workers, are not lost.
    assert len(granted) >= 0.98 * ideal(answers) - float(LIMIT.rate) * LEASE - held
    assert calls(own_server) < len(answers) / 2


def test_a_load_below_the_rate_is_granted_in_full(port: int, own_server: Server) -> None:
    answers = offer(port, 50)
    assert {answer.status for answer in answers} == {200}
    assert calls(own_server) < len(answers)
