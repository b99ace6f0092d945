"""A shop with limits of every kind, so that each panel of the dashboard has something to show."""

from __future__ import annotations

import time

from flask import Flask, Response

from flask_bucket import Limiter, Rule, request_header
from flask_bucket.metrics.prometheus import PrometheusMetrics

app = Flask(__name__)
app.config.from_prefixed_env()
app.config.update(BUCKET_WORKERS=2, BUCKET_TIMEOUT=0.5)  # the load keeps the machine busy
# The load says who it is. An application would check who its clients are.
limiter = Limiter(app, key_func=request_header("X-Client"))


def is_failure(response: Response) -> bool:
    return response.status_code == 401


@app.get("/search")
@limiter.limit(Rule("500/second burst 2000", scope="all", key_func=lambda: "all", lease=1))
@limiter.limit("5/second burst 20")
def search() -> str:
    return "found"


@app.get("/report")
@limiter.limit(["2 at once", "30/minute"])
def report() -> str:
    time.sleep(0.4)
    return "done"


@app.get("/login")
@limiter.limit("5/minute", deduct_when=is_failure, ban="10/hour for 45 seconds")
def login() -> tuple[str, int]:
    return "wrong password", 401


@app.get("/items")
@limiter.limit("2/second", dry_run=True)
def items() -> str:
    return "items"


metrics = PrometheusMetrics(app)
app.add_url_rule("/metrics", view_func=limiter.exempt(metrics.view))
