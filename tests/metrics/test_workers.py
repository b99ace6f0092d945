"""The workers of gunicorn are counted together."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.servers import Server, free_port

APPLICATION = """
import os
import time
from flask import Flask
from flask_bucket import Limiter
from flask_bucket.metrics.prometheus import PrometheusMetrics

app = Flask(__name__)
app.config["BUCKET_TIMEOUT"] = 5
limiter = Limiter(app, redis=os.environ["URL"], application_limits="10000/hour")
app.add_url_rule("/metrics", view_func=limiter.exempt(PrometheusMetrics(app).view))

@app.get("/pid")
def pid():
    time.sleep(0.01)  # busy, so that the other worker is asked as well
    return str(os.getpid())
"""
CONFIG = """
from prometheus_client import multiprocess

def child_exit(server, worker):
    multiprocess.mark_process_dead(worker.pid)
"""


@pytest.fixture
def served(tmp_path: Path, valkey: Server) -> Iterator[str]:
    """The URL of an application that two workers of gunicorn serve."""
    (tmp_path / "served.py").write_text(APPLICATION)
    (tmp_path / "gunicorn.conf.py").write_text(CONFIG)
    (tmp_path / "metrics").mkdir()
    port = free_port()
    environment = os.environ | {
        "PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "metrics"),
        "URL": valkey.url,
    }
    command = [sys.executable, "-m", "gunicorn", "-w", "2", "-b", f"127.0.0.1:{port}", "served:app"]
    with (tmp_path / "log").open("wb") as log:
        master = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(f"{url}/metrics")
        yield url
    finally:
        master.terminate()
        master.wait(30)


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as response:
        return str(response.read().decode())


def wait_for(url: str) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            fetch(url)
            return
        except OSError:
            assert time.monotonic() < deadline, "gunicorn does not answer"
            time.sleep(0.05)


def test_the_workers_of_gunicorn_are_counted_together(served: str) -> None:
    workers: set[str] = set()
    asked = 0
    with ThreadPoolExecutor(8) as pool:
        while len(workers) < 2:
            workers.update(pool.map(fetch, [f"{served}/pid"] * 24))
            asked += 24
            assert asked < 2_000, "one worker answers everything"
    for _ in range(5):  # whichever worker is asked
        text = fetch(f"{served}/metrics")
        counted = re.search(
            r'^flask_bucket_decisions_total\{[^}]*endpoint="pid"[^}]*outcome="allowed"\} (\S+)$',
            text,
            re.MULTILINE,
        )
        assert counted is not None
        assert float(counted[1]) == asked
        assert 'flask_bucket_breaker_open{limiter="bucket"} 0.0' in text
