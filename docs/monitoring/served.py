"""Serves the shop beside this file, puts load on it, and lets a real Prometheus scrape it."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import redis

from flask_bucket import embedded

FOLDER = Path(__file__).parent

SCRAPE = 2  # seconds

#: Seconds of load. For some of them, the server of the buckets stands still.
LOAD, OUTAGE_AT, OUTAGE = 240, 170, 15


@contextmanager
def shop(folder: Path) -> Iterator[tuple[int, int]]:
    """Serve the shop. Yield its port, and the process that keeps its buckets."""
    valkey, port, counts = embedded.start(), _free_port(), folder / "counts"
    counts.mkdir()
    environment = {
        **os.environ,
        embedded.REDIS_URL: valkey.url,
        "PROMETHEUS_MULTIPROC_DIR": str(counts),
    }
    command = [sys.executable, "-m", "gunicorn", "--workers", "2", "--threads", "8", "--bind"]
    command += [f"127.0.0.1:{port}", "--chdir", str(FOLDER), "--log-level", "warning", "shop:app"]
    served = subprocess.Popen(command, env=environment)
    try:
        with redis.Redis.from_url(valkey.url) as client:
            server = client.info("server")["process_id"]
        yield port, server
    finally:
        served.terminate()
        served.wait()
        assert valkey.keeper.stdin is not None
        valkey.keeper.stdin.close()


@contextmanager
def prometheus(folder: Path, shop: int) -> Iterator[Callable[[str, float, float], Any]]:
    """Let Prometheus scrape the shop. Yield a function that asks it."""
    program, port = shutil.which("prometheus"), _free_port()
    if program is None:
        sys.exit("The program prometheus is not on the path. Debian has it in a package.")
    settings = folder / "prometheus.yml"
    scraped = {"job_name": "shop", "static_configs": [{"targets": [f"127.0.0.1:{shop}"]}]}
    settings.write_text(
        json.dumps({"global": {"scrape_interval": f"{SCRAPE}s"}, "scrape_configs": [scraped]})
    )
    command = [program, f"--config.file={settings}", f"--storage.tsdb.path={folder / 'data'}"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    running = subprocess.Popen(command)

    def ask(expression: str, start: float, end: float) -> Any:
        query = urlencode({"query": expression, "start": start, "end": end, "step": SCRAPE})
        with urlopen(f"http://127.0.0.1:{port}/api/v1/query_range?{query}") as answer:
            found = json.load(answer)["data"]["result"]
        return [(series["metric"], series["values"]) for series in found]

    try:
        yield ask
    finally:
        running.terminate()
        running.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def put_load(port: int, server: int) -> None:
    """Let visitors come and go. In between, the server of the buckets stands still."""
    over, began = Event(), time.monotonic()

    def visit(client: str, path: str, pause: float) -> None:
        while not over.is_set():
            asked = Request(f"http://127.0.0.1:{port}{path}", headers={"X-Client": client})
            with suppress(OSError):  # refused, or the shop is not there yet
                urlopen(asked, timeout=5).close()
            wave = 1.4 + math.sin((time.monotonic() - began) / 25 + len(client))
            over.wait(pause * wave)

    load = [("ann", "/search", 0.15), ("robert", "/search", 0.1), ("scraper", "/search", 0.02)]
    load += [("ann", "/items", 0.3), ("scraper", "/items", 0.1), ("guesser", "/login", 0.5)]
    load += [(f"desk{n}", "/report", 0.8) for n in range(2)] + [("desk0", "/report", 0.5)] * 3
    visitors = [Thread(target=visit, args=each) for each in load]
    for visitor in visitors:
        visitor.start()
    time.sleep(OUTAGE_AT)
    os.kill(server, signal.SIGSTOP)
    time.sleep(OUTAGE)
    os.kill(server, signal.SIGCONT)
    time.sleep(LOAD - OUTAGE_AT - OUTAGE)
    over.set()
    for visitor in visitors:
        visitor.join()
