"""Simulates leases: workers that share one hot bucket, on a clock that costs nothing.

    python -m benchmarks.leases

prints a table of calls, grants and excess over numbers of workers, loads and leases, and draws
docs/images/leases.svg.
"""

from __future__ import annotations

import random
import runpy
import sys
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from flask_bucket import Charge, Limit, MemoryStore
from flask_bucket.stores.leases import LeaseStore

LIMIT = Limit.parse("5000/second burst 20000")
KEY = "bucket:{all}:@application:per-second"
WORKERS = (1, 4, 16, 64, 256, 1000)
#: Requests offered, as a part of the rate.
LOADS = (0.4, 2.0)
LEASES = (0.05, 0.1, 0.5)
SECONDS = 6

MICROSECONDS = 1_000_000

DOCS = Path(__file__).parents[1] / "docs"
#: The plots of the documentation look alike.
PLOTS = runpy.run_path(str(DOCS / "plots.py"))
COLOURS = (PLOTS["RED"], PLOTS["BLUE"], PLOTS["GREEN"])


@dataclass(frozen=True)
class Result:
    """The result of one simulation."""

    calls_per_request: float
    #: Requests allowed, as a part of those that one exact bucket would have allowed.
    share_of_ideal: float
    #: Tokens granted in the worst interval beyond capacity + rate x time.
    excess: int


def simulate(
    workers: int, load: float, lease: float, *, limit: Limit = LIMIT, seconds: int = SECONDS
) -> Result:
    """Let requests come at random to workers that share a bucket, which is empty at first."""
    now, arrivals = 0, random.Random(7)
    store = MemoryStore(lambda: now)
    store.settle([Charge(limit, KEY, limit.capacity)], 0)
    fleet = [LeaseStore(store, workers, lambda: now / MICROSECONDS) for _ in range(workers)]
    charges = (Charge(limit, KEY, lease=lease),)
    rate = limit.rate / MICROSECONDS
    ideal, real = Level(limit.capacity, rate), Level(limit.capacity, rate, limit.capacity)
    requests = calls = wanted = granted = lowest = 0
    while now < seconds * MICROSECONDS:
        now += 1 + round(arrivals.expovariate(load * float(limit.rate)) * MICROSECONDS)
        requests += 1
        if ideal.at(now) >= 1:
            ideal.tokens -= 1
            wanted += 1
        decision = fleet[arrivals.randrange(workers)].take(charges)
        calls += not (decision.leased or decision.cached)
        if decision:
            granted += 1
            real.at(now)
            real.tokens -= 1
            lowest = min(lowest, int(real.tokens))
    return Result(calls / requests, granted / wanted, -lowest)


class Level:
    """The tokens of an exact bucket."""

    def __init__(self, capacity: int, rate: Fraction, tokens: int = 0) -> None:
        self.tokens = float(tokens)
        self._capacity, self._rate, self._now = capacity, float(rate), 0

    def at(self, now: int) -> float:
        """Return the tokens at a time, in microseconds."""
        refilled = self.tokens + self._rate * (now - self._now)
        self.tokens, self._now = min(float(self._capacity), refilled), now
        return self.tokens


def table(results: dict[tuple[int, float, float], Result]) -> str:
    """Return the results as a table in Markdown."""
    lines = [
        "| Workers | Load | Lease | Calls per request | Part of the ideal | Worst excess |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for (workers, load, lease), result in results.items():
        lines.append(
            f"| {workers} | {load:g} x rate | {lease:g} s | {result.calls_per_request:.3f} | "
            f"{result.share_of_ideal:.3f} | {result.excess} |"
        )
    return "\n".join(lines)


def plot(results: dict[tuple[int, float, float], Result]) -> Figure:
    """Draw the calls of a request against the number of workers."""
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.subplots(1, len(LOADS), sharey=True)
    for ax, load in zip(axes, LOADS, strict=True):
        for lease, colour in zip(LEASES, COLOURS, strict=True):
            calls = [results[workers, load, lease].calls_per_request for workers in WORKERS]
            label = f"{lease:g} s"
            ax.plot(WORKERS, calls, "o-", color=colour, linewidth=1.4, markersize=4, label=label)
        ax.set(xscale="log", xlabel="workers", title=f"Load: {load:g} x rate", ylim=(0, 1.05))
        ax.set_xticks(WORKERS, map(str, WORKERS))
        ax.minorticks_off()
    axes[0].set_ylabel("calls per request")
    axes[0].legend(title="lease", loc="upper left")
    return figure


def main() -> None:
    results = {
        (workers, load, lease): simulate(workers, load, lease)
        for load in LOADS
        for lease in LEASES
        for workers in WORKERS
    }
    sys.stdout.write(f"{LIMIT}, {SECONDS} s\n\n{table(results)}\n")
    file = DOCS / "images" / "leases.svg"
    with mpl.rc_context(PLOTS["STYLE"]):
        plot(results).savefig(file, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
