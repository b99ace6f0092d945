"""The application that every kind of server serves in the tests of workers."""

from __future__ import annotations

import os
import time

from flask import Flask

from flask_bucket import Limiter

app = Flask(__name__)
app.config.from_prefixed_env()
limiter = Limiter(app, key_func=lambda: "everybody")
began: list[float] = []


@app.get("/")
@limiter.limit(os.environ.get("LIMIT", "5/hour"))
def index() -> str:
    """Say which worker this is, and for how many seconds it has served requests."""
    began.append(time.monotonic())
    return f"{os.getpid()} {time.monotonic() - began[0]}"
