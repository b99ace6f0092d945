"""The application that gunicorn serves in the tests of process models."""

from __future__ import annotations

import os

from flask import Flask

from flask_bucket import Limiter

app = Flask(__name__)
app.config.from_prefixed_env()
limiter = Limiter(app, key_func=lambda: "everybody")


@app.get("/")
@limiter.limit("100 per day")
def index() -> str:
    return str(os.getpid())


with app.app_context():
    # With --preload this is the master: its connection is open when the workers are forked.
    assert limiter.consume("1000 per day", "import")
