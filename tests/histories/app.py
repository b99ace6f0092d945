"""The application of the workers: one call to the store for each request, told in full."""

from __future__ import annotations

from flask import Flask, Response, jsonify

from flask_bucket import Limit, Limiter

#: A tick is a microsecond, and a token has parts that a tick does not divide. It refills slower
#: than clients of a busy machine ask.
LIMIT = Limit(capacity=60, refill_rate=199, per=3)

app = Flask(__name__)
app.config.from_prefixed_env()
limiter = Limiter(app)


@app.get("/<int:cost>")
def take(cost: int) -> Response:
    decision = limiter.consume(LIMIT, "everybody", cost)
    if decision.degraded:  # no answer came: the call may have reached the server, or not
        return jsonify(None)
    return jsonify(allowed=decision.allowed, remaining=decision.remaining, now=decision.now)
