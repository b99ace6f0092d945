"""The time that each limiter adds to a request, in one process. All apps take turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flask import Flask
from werkzeug.test import EnvironBuilder

from benchmarks.apps import APPS

ENVIRON = EnvironBuilder("/", environ_base={"REMOTE_ADDR": "127.0.0.1"}).get_environ()


def _start_response(*_: Any) -> Callable[[bytes], None]:
    return lambda _: None


def request(app: Flask, environ: Mapping[str, Any] = ENVIRON) -> None:
    """Run one request through the app, as a WSGI server would."""
    body: Any = app.wsgi_app(dict(environ), _start_response)
    for _ in body:
        pass
    body.close()


def measure(
    url: str, rounds: int = 40, requests: int = 100, names: Iterable[str] = APPS
) -> dict[str, list[float]]:
    """Return the microseconds per request: one figure for each app and round.

    The apps take turns within each round, so that whatever else the machine does slows all of
    them alike; figures of one round are compared with each other only.
    """
    apps = {name: APPS[name](url) for name in names}
    for app in apps.values():
        for _ in range(2 * requests):
            request(app)
    figures: dict[str, list[float]] = {name: [] for name in apps}
    for _ in range(rounds):
        for name, app in apps.items():
            begin = time.perf_counter()
            for _ in range(requests):
                request(app)
            figures[name].append((time.perf_counter() - begin) / requests * 1e6)
    return figures


def added(figures: dict[str, list[float]]) -> dict[str, float]:
    """Return the median of what each app adds to bare Flask, in microseconds."""
    bare = figures["bare Flask"]
    return {
        name: statistics.median(a - b for a, b in zip(rounds, bare, strict=True))
        for name, rounds in figures.items()
        if name != "bare Flask"
    }


def ratios(figures: dict[str, list[float]], one: str, other: str) -> list[float]:
    """Return what `one` adds divided by what `other` adds, for each round."""
    return [
        (a - bare) / (b - bare)
        for a, b, bare in zip(figures[one], figures[other], figures["bare Flask"], strict=True)
    ]
