"""Saves the results of a run: figures, a table, and plots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

from benchmarks.claims import Claim, Spread

INK, OURS, THEIRS = "#1f2933", "#0b7285", "#adb5bd"
mpl.rcParams.update(
    {
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": INK,
        "text.color": INK,
        "svg.hashsalt": "flask_bucket",
        "figure.constrained_layout.use": True,
    }
)


def keep(results: dict[str, Any], folder: Path) -> None:
    """Write results.json, results.md and the plots. Parts that were not run stay unchanged."""
    folder.mkdir(exist_ok=True)
    path = folder / "results.json"
    known = json.loads(path.read_text()) if path.exists() else {"figures": {}, "claims": []}
    replaced = {claim["what"] for claim in results["claims"]}
    results["figures"] = {**known["figures"], **results["figures"]}
    results["claims"] = [c for c in known["claims"] if c["what"] not in replaced] + results[
        "claims"
    ]
    results = json.loads(json.dumps(results))
    path.write_text(json.dumps(results, indent=2) + "\n")
    (folder / "results.md").write_text(table(results))
    figures = results["figures"]
    stamp = "{date}, Python {python}, {engine}".format(**results["versions"])
    if "requests" in figures:
        _bars(
            figures["requests"]["added"],
            "added to a request, microseconds",
            stamp,
            folder / "added.svg",
        )
    if "workers" in figures:
        for kind, shares in figures["workers"].items():
            _bars(
                shares,
                f"throughput under gunicorn {kind}, bare Flask = 1",
                stamp,
                folder / f"{kind}.svg",
            )
    if "growth" in figures:
        _growth(figures["growth"], stamp, folder / "growth.svg")


def table(results: dict[str, Any]) -> str:
    """Return the claims and the figures as Markdown."""
    lines = ["| claim | measured | target | |", "| --- | ---: | ---: | --- |"]
    for known in results["claims"]:
        spread = Spread(**known["measured"])
        lines.append(Claim(known["what"], spread, known["target"], known["at_least"]).row())
    lines += ["", ", ".join(f"{name} {text}" for name, text in results["versions"].items()), ""]
    return "\n".join(lines)


def _bars(figures: dict[str, float], title: str, stamp: str, path: Path) -> None:
    names = list(figures)[::-1]
    figure, axes = plt.subplots(figsize=(8, 0.34 * len(names) + 1))
    colours = [OURS if name.startswith("flask_bucket") else THEIRS for name in names]
    bars = axes.barh(names, [figures[name] for name in names], color=colours)
    largest = max(figures.values())
    axes.bar_label(bars, fmt="%.2f" if largest < 10 else "%.0f", padding=3)
    axes.set_title(title, loc="left")
    axes.set_xlabel(stamp, fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _growth(series: dict[str, dict[str, float]], stamp: str, path: Path) -> None:
    figure, panels = plt.subplots(1, len(series), figsize=(3 * len(series), 3))
    for axes, (what, values) in zip(panels, series.items(), strict=True):
        steps = [int(step) for step in values]
        axes.plot(steps, list(values.values()), "o-", color=OURS)
        axes.set_xscale("log" if max(steps) > 20 else "linear")
        axes.set_ylim(bottom=0)
        axes.set_title("calls/s" if what == "threads" else "microseconds", loc="left")
        axes.set_xlabel(what)
    figure.suptitle(f"How the cost grows ({stamp})", fontsize=10)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
