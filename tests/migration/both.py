"""The same small app, limited by Flask-Limiter and by flask_bucket, at the same times."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import flask_limiter
import pytest
from flask import Flask
from flask_limiter.util import get_remote_address

import flask_bucket
from flask_bucket import MemoryStore

#: Where time begins.
START = 1_700_000_000

#: Adds views to an app, with limits of a given Limiter.
Declare = Callable[[Flask, Any], None]


def view(name: str) -> Callable[[], str]:
    """Make a view with a name of its own: Flask-Limiter knows functions by theirs."""

    def served() -> str:
        return "served"

    served.__name__ = served.__qualname__ = name
    return served


class Both:
    """Sends each request to both apps, and says what each of them answered."""

    def __init__(self, declare: Declare, monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> None:
        self.second = float(START)
        monkeypatch.setattr(time, "time", lambda: self.second)
        theirs, ours = Flask("theirs"), Flask("ours")
        declare(
            theirs,
            flask_limiter.Limiter(
                get_remote_address, app=theirs, storage_uri="memory://", **arguments
            ),
        )
        store = MemoryStore(clock=lambda: round(self.second * 1_000_000))
        declare(ours, flask_bucket.Limiter(ours, redis=store, **arguments))
        self.theirs, self.ours = theirs.test_client(), ours.test_client()

    def wait(self, seconds: float) -> None:
        self.second += seconds

    def ask(
        self, path: str = "/", method: str = "GET", client: str = "192.0.2.1", **rest: Any
    ) -> tuple[int, int]:
        """Return the statuses of Flask-Limiter's app and of ours."""
        rest |= {"method": method, "environ_base": {"REMOTE_ADDR": client}}
        return (
            self.theirs.open(path, **rest).status_code,
            self.ours.open(path, **rest).status_code,
        )

    def allowed(self, times: int, path: str = "/", **rest: Any) -> tuple[int, int]:
        """Return how many of so many requests each of them allowed."""
        verdicts = [self.ask(path, **rest) for _ in range(times)]
        theirs, ours = zip(*verdicts, strict=True)
        return times - theirs.count(429), times - ours.count(429)
