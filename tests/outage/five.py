"""What every kind of server serves in the tests of workers: five of twelve requests pass."""

from __future__ import annotations

from flask import Flask

from flask_bucket import Limiter

app = Flask(__name__)
app.config.from_prefixed_env()
limiter = Limiter(app, key_func=lambda: "everybody")


@app.get("/")
@limiter.limit("5/hour")
def index() -> str:
    return "fine"
