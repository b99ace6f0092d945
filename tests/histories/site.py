"""Four workers of gunicorn, and clients that record every call."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from threading import Event

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.histories.history import Answer, Call, microseconds
from tests.servers import Server, free_port

WORKERS = 4

#: Seconds until something is surely wrong.
PATIENCE = 60

COSTS = (0, 1, 1, 2, 3)


@dataclass(frozen=True, slots=True)
class Site:
    """The application under gunicorn, and its server."""

    port: int
    master: subprocess.Popen[bytes]
    server: Server

    def ask(self, cost: int) -> Answer | None:
        """Make one call. Return None if no answer came, of the worker or of the server."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as http_:
            try:
                http_.request("GET", f"/{cost}")
                response = http_.getresponse()
                body = response.read()
            except TimeoutError:
                raise  # the worker still lives, so nobody knows when this call ends
            except (OSError, http.client.HTTPException):
                return None
        assert response.status == 200, body
        said = json.loads(body)
        return None if said is None else Answer(**said)

    def workers(self) -> list[int]:
        """Return the process ids of the workers that live now."""
        command = ["pgrep", "-P", str(self.master.pid)]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        return [int(pid) for pid in found.stdout.split()]


@contextmanager
def serving(server: Server, log: Path) -> Iterator[Site]:
    port = free_port()
    # Workers that are killed are replaced by forks of a master that has imported everything.
    command = [sys.executable, "-m", "gunicorn", "tests.histories.app:app", "--preload"]
    command += [f"-b127.0.0.1:{port}", f"-w{WORKERS}", "--no-control-socket"]
    environment = {
        **os.environ,
        "FLASK_BUCKET_REDIS_URL": server.url,
        "FLASK_BUCKET_TIMEOUT": "5.0",
        "FLASK_BUCKET_REFUSAL_CACHE": "0",
        "FLASK_BUCKET_RECOVERY_INTERVAL": "0.05",
    }
    with log.open("wb") as output:
        master = subprocess.Popen(
            command, stdout=output, stderr=output, env=environment, start_new_session=True
        )
    site = Site(port, master, server)
    try:
        deadline = time.monotonic() + PATIENCE
        while site.ask(0) is None:
            assert master.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(0.05)
        yield site
    finally:
        os.killpg(master.pid, signal.SIGKILL)  # with its workers
        master.wait()


def record(site: Site, seed: int, pause: float, over: Event) -> list[Call]:
    """Make calls, one after the other, until it is over."""
    calls: list[Call] = []
    random = Random(seed)
    while not over.wait(random.random() * 2 * pause):
        cost, begun = random.choice(COSTS), microseconds()
        answer = site.ask(cost)
        if answer is None:
            see_its_end(site.server)
        calls.append(Call(begun, microseconds(), cost, answer))
    return calls


def see_its_end(server: Server) -> None:
    """Wait until the server has surely done everything that it was sent before.

    The worker of a lost call is dead, or has given up. Its command may still wait in a socket. The
    server reads all sockets that are ready before it waits for others again. So it has read that
    one when a second PING is answered on a connection that answered one before.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        with server.client() as client:
            client.set_retry(Retry(NoBackoff(), 0))
            try:
                connected = client.client_id()
                client.ping()
                client.ping()
                if client.client_id() == connected:
                    return
            except redis.RedisError:
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.01)
