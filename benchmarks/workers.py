"""Throughput under gunicorn, with two workers and ten connections. The apps take turns."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks import load

COMPARED = (
    "bare Flask",
    "flask_bucket, 1 limit",
    "flask_bucket, 3 limits",
    "flask_bucket, refused",
    "flask_bucket, 1 leased",
    "Flask-Limiter fixed-window, 1 limit",
    "Flask-Limiter fixed-window, 3 limits",
    "Flask-Limiter fixed-window, refused",
)
CONNECTIONS = 10


@contextmanager
def serving(name: str, url: str, worker_class: str, workers: int = 2) -> Iterator[str]:
    """Serve an app under gunicorn; yield its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "gunicorn", "-w", str(workers), "-k", worker_class]
    command += ["--threads", "4"] if worker_class == "gthread" else []
    command += ["-b", f"127.0.0.1:{port}", "--log-level", "error"]
    command += ["benchmarks.apps:from_environment()"]
    environment = {**os.environ, "BENCH_APP": name, "BENCH_REDIS_URL": url}
    process = subprocess.Popen(command, env=environment)
    address = f"http://127.0.0.1:{port}/"
    try:
        for _ in range(500):
            try:
                urllib.request.urlopen(address).close()
                break
            except urllib.error.HTTPError:
                break  # a refusal is an answer, too
            except OSError:
                time.sleep(0.02)  # until gunicorn listens
        yield address
    finally:
        process.terminate()
        process.wait()


def throughput(address: str, seconds: float) -> float:
    """Return the requests per second, measured by wrk if it is installed: it needs least CPU time.

    The connections are opened in two halves. If ten arrive at once, the worker that wakes up first
    often accepts all of them, and the other one idles. That happens two times in five, with a bare
    app too.
    """
    if shutil.which("wrk") is None:
        plan = load.Plan(url=address, duration=seconds, concurrency=CONNECTIONS)
        return load.run(plan).throughput
    whole = str(max(1, round(seconds)))  # wrk takes only whole seconds
    command = ["wrk", "-t", "1", "-c", str(CONNECTIONS // 2), "-d", f"{whole}s", address]
    halves = []
    for _ in range(2):
        halves.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        time.sleep(0.1)  # until the first half keeps one worker busy
    return sum(_requests_a_second(half.communicate()[0]) for half in halves)


def _requests_a_second(output: str) -> float:
    found = re.search(r"Requests/sec:\s+([\d.]+)", output)
    assert found, output
    return float(found[1])


def measure(
    url: str, worker_class: str, rounds: int = 20, seconds: float = 1
) -> dict[str, list[float]]:
    """Return the requests per second: one figure for each app and round.

    All apps run throughout, and take turns in short measurements. An idle app costs nothing, and
    other load on the machine affects all apps alike.
    """
    figures: dict[str, list[float]] = {name: [] for name in COMPARED}
    with ExitStack() as stack:
        addresses = {
            name: stack.enter_context(serving(name, url, worker_class)) for name in COMPARED
        }
        for address in addresses.values():
            throughput(address, seconds)  # connects, loads the script
        for _ in range(rounds):
            for name, address in addresses.items():
                figures[name].append(throughput(address, seconds))
    return figures


def shares(figures: dict[str, list[float]], name: str) -> list[float]:
    """Return an app's throughput divided by bare Flask's, for each round."""
    return [a / b for a, b in zip(figures[name], figures["bare Flask"], strict=True)]
