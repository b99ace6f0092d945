"""The example app under load: four workers, ten connections, one client that is mostly refused."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from benchmarks import load
from benchmarks.workers import CONNECTIONS, serving

COMPARED = (
    "the example app",
    "the example with Flask-Limiter",
    "the example without limits",
)

#: The figures that the original, in JavaScript, published of its own run, on another machine.
PUBLISHED = {"throughput": 2168, "p50": 4, "p97_5": 6, "p99": 7, "max": 30}


def measure(url: str, rounds: int = 3, seconds: float = 10) -> dict[str, list[load.Report]]:
    """Return the reports of each app, one for each round. The apps take turns."""
    reports: dict[str, list[load.Report]] = {name: [] for name in COMPARED}
    with ExitStack() as stack:
        addresses = {
            name: stack.enter_context(serving(name, url, "gthread", workers=4)) + "test"
            for name in COMPARED
        }
        for address in addresses.values():  # every worker connects, and loads the script
            load.run(load.Plan(url=address, duration=max(2, seconds / 5), concurrency=CONNECTIONS))
        for _ in range(rounds):
            for name, address in addresses.items():
                plan = load.Plan(url=address, duration=seconds, concurrency=CONNECTIONS)
                reports[name].append(load.run(plan))
    return reports


def rows(reports: dict[str, list[load.Report]]) -> dict[str, dict[str, Any]]:
    """Return for each app the throughput and the latencies in milliseconds: the medians of the
    rounds. The statuses are counted over all rounds."""
    found: dict[str, dict[str, Any]] = {"published of the original": dict(PUBLISHED)}
    for name, several in reports.items():
        latencies = [asdict(report.latencies_ms) for report in several if report.latencies_ms]
        statuses: dict[int, int] = {}
        for report in several:
            for status, count in report.statuses.items():
                statuses[status] = statuses.get(status, 0) + count
        found[name] = {
            "throughput": statistics.median(report.throughput for report in several),
            **{p: statistics.median(each[p] for each in latencies) for p in list(PUBLISHED)[1:]},
            "statuses": statuses,
            "errors": sum(sum(report.errors.values()) for report in several),
        }
    return found
