"""The application in the tests of requests at once: its views write down when they ran."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from uuid import uuid4

from flask import Flask, Response, g, send_file

from flask_bucket import Limiter, Rule

app = Flask(__name__)
app.config.from_prefixed_env()

#: Where each worker writes: one line for each event, in one call, so that lines never mix.
LOG = os.open(os.environ["INFLIGHT"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
SECONDS = float(os.environ["SECONDS"])


def note(event: str) -> None:
    """Note an event of the current request, on the clock that all processes of a machine share."""
    os.write(LOG, f"{event} {g.name} {os.getpid()} {time.monotonic_ns()}\n".encode())


@app.before_request
def arrive() -> None:
    g.name = uuid4().hex
    note("arrived")


limiter = Limiter(app, key_func=lambda: "everybody")
THREE = Rule("3 at once", holds=float(os.environ["HOLDS"]), scope="export")


@app.get("/")
@limiter.limit(THREE)
def view() -> str:
    note("began")
    time.sleep(SECONDS)
    note("ended")
    return "fine"


@app.get("/file")
@limiter.limit(THREE)
def file() -> Response:
    return send_file(os.environ["FILE"])


@app.get("/stream")
@limiter.limit(THREE)
def stream() -> Response:
    def parts() -> Iterator[bytes]:
        for _ in range(1000):
            time.sleep(SECONDS)
            yield b"." * 10_000

    return Response(parts())
