"""Requests at once, from a client's side, against the oracle: whatever requests do, and hooks."""

from __future__ import annotations

from typing import Any

from flask import Flask, Response, request
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.test import TestResponse

from flask_bucket import AtOnce, Limiter
from flask_bucket.testing import use_clock
from tests.property.oracle import SlotsOracle
from tests.property.profiles import examples

SECOND = 1_000_000

#: The ends of a request. A streamed body is read, closed or forgotten later on.
ENDS = ("stream", "text", "abort", "crash", "hook", "refused later", "block", "nested block")


def serve(slots: int, holds: int) -> Flask:
    """Return an application whose requests end as each of them asks."""
    app = Flask(__name__)
    limiter = Limiter(app, application_limits=AtOnce(slots, holds=holds))

    @app.before_request
    def answered() -> Any:
        return ("answered by a hook", 503) if request.args["end"] == "hook" else None

    @app.get("/")
    def view() -> Any:
        end = request.args["end"]
        if end == "stream":
            return Response(iter(["a", "b"]))
        if end == "abort":
            return "not found", 404
        if end == "crash":
            raise LookupError
        if end.endswith("block"):
            with limiter.limit("1 at once", scope="block"):
                if end == "nested block":
                    with limiter.limit("1 at once", scope="block"):
                        pass
        return "text"

    @app.get("/refused")
    @limiter.limit("1/day", cost=2)
    def refused() -> str:
        raise AssertionError("refused")

    return app


@examples(60, 600)
@given(
    slots=st.integers(1, 3),
    holds=st.integers(1, 20),
    history=st.lists(
        st.tuples(st.integers(0, 12), st.sampled_from((*ENDS, "read", "close", "close twice"))),
        max_size=25,
    ),
)
def test_a_request_is_allowed_if_a_slot_is_free_for_it(
    slots: int, holds: int, history: list[tuple[int, str]]
) -> None:
    app = serve(slots, holds)
    clock, client, oracle = use_clock(app), app.test_client(), SlotsOracle(slots, holds * SECOND)
    streams: list[tuple[str, TestResponse]] = []
    for number, (seconds, what) in enumerate(history):
        clock.advance(seconds)
        name, now = str(number), clock.now
        if what in ("read", "close", "close twice"):
            if streams:
                name, stream = streams.pop(0)
                end = stream.get_data if what == "read" else stream.close
                for _ in range(1 + (what == "close twice")):
                    end()
                oracle.free(name, now)
            continue
        fits = oracle.fits(name, now)
        path = "/refused" if what == "refused later" else "/"
        response = client.get(path, query_string={"end": what})
        expected = {"abort": 404, "crash": 500, "hook": 503, "refused later": 429}.get(what, 200)
        assert response.status_code == (expected if fits else 429)
        if fits and what == "stream":
            oracle.hold(name, now)
            streams.append((name, response))
        if not fits:
            assert response.headers["Retry-After"] == "1"
