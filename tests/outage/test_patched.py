"""Libraries that replace sockets and poll after the first request: no request fails for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.servers import Server

PROGRAM = """
import sys, warnings
from flask import Flask
from flask_bucket import Limiter

app = Flask("patched")
app.config["BUCKET_TIMEOUT"] = 5.0
Limiter(app, redis=sys.argv[1], default_limits=["500/day"])
app.get("/")(lambda: "fine")
client = app.test_client()
answers = [client.get("/") for _ in range(3)]
warnings.simplefilter("ignore")
{patch}
answers += [client.get("/") for _ in range(6)]
threads = [{spawn}(lambda: answers.append(client.get("/"))) for _ in range(4)]
{join}
print([a.status_code for a in answers], sorted(a.headers["X-RateLimit-Remaining"] for a in answers))
"""

PATCHED = {
    "gevent": (
        "import gevent.monkey; gevent.monkey.patch_all()",
        "gevent.spawn",
        "gevent.joinall(threads)",
    ),
    "eventlet": (
        "import eventlet; eventlet.monkey_patch()",
        "eventlet.spawn",
        "[thread.wait() for thread in threads]",
    ),
}


@pytest.mark.parametrize("library", PATCHED)
def test_requests_go_on_after_a_late_patch(library: str, valkey: Server) -> None:
    pytest.importorskip(library)
    patch, spawn, join = PATCHED[library]
    program = PROGRAM.format(patch=patch, spawn=spawn, join=join)
    done = subprocess.run(
        [sys.executable, "-c", program, valkey.url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    remaining = sorted(str(500 - n) for n in range(1, 14))
    assert done.stdout == f"{[200] * 13} {remaining}\n", done.stderr
