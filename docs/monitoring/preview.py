"""Draws the dashboard without Grafana: ``python -m docs.monitoring.preview``.

It asks a real Prometheus, which scrapes a shop under load, for every expression of
``grafana.json``, and draws each panel at its place. It takes four minutes. The program
``prometheus`` must be on the path.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.ticker import MultipleLocator

from . import served

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FOLDER = Path(__file__).parent
DASHBOARD = FOLDER / "grafana.json"
PICTURE = FOLDER.parent / "images" / "dashboard.png"

#: What stands for the variables that Grafana fills in.
VARIABLES = {"$__rate_interval": "20s", "$job": ".*", "$limiter": ".*"}

COLOURS = {"green": "#2d7d46", "orange": "#d98b00", "red": "#c1121f", "text": "#2a6f97"}
GRID = 24  # columns that Grafana has
ROW, COLUMN = 0.36, 0.6  # inches

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.handlelength": 1.2,
}


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel of the dashboard."""

    title: str
    kind: str
    #: Its place in Grafana's grid: column, row, width and height.
    place: tuple[int, int, int, int]
    unit: str
    #: Each expression with the format of its legend.
    targets: tuple[tuple[str, str], ...]
    #: The top of its axis, if it is given.
    most: float | None
    is_stacked: bool
    #: Colours of a number, each from a value on.
    steps: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a panel."""

    label: str
    seconds: tuple[float, ...]
    values: tuple[float, ...]


#: Answers an expression with the labels and the samples of each series.
Ask = Callable[[str], list[tuple[dict[str, str], list[tuple[float, str]]]]]


def panels() -> list[Panel]:
    """Return the panels of the dashboard."""
    return [_panel(each) for each in json.loads(DASHBOARD.read_text())["panels"]]


def _panel(given: dict[str, Any]) -> Panel:
    place, defaults = given["gridPos"], given["fieldConfig"]["defaults"]
    steps = defaults.get("thresholds", {}).get("steps", [])
    return Panel(
        title=given["title"],
        kind=given["type"],
        place=(place["x"], place["y"], place["w"], place["h"]),
        unit=defaults["unit"],
        targets=tuple((_filled(each["expr"]), each["legendFormat"]) for each in given["targets"]),
        most=defaults.get("max"),
        is_stacked=defaults.get("custom", {}).get("stacking", {}).get("mode") == "normal",
        steps=tuple((step["value"] or 0, step["color"]) for step in steps),
    )


def _filled(expression: str) -> str:
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    return expression


def lines_of(panel: Panel, ask: Ask) -> list[Line]:
    """Ask for every expression of a panel."""
    return [
        Line(
            _label(legend, labels),
            tuple(second for second, _ in samples),
            tuple(float(value) for _, value in samples),
        )
        for expression, legend in panel.targets
        for labels, samples in ask(expression)
    ]


def _label(legend: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), legend)


def draw(ask: Ask) -> Figure:
    """Draw all panels at their places."""
    from matplotlib.figure import Figure

    found = panels()
    rows = max(y + h for _, y, _, h in (panel.place for panel in found))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(GRID * COLUMN, rows * ROW), facecolor="white")
        for panel in found:
            x, y, w, h = panel.place
            left, right, above, below = (0.4, 0.4, 1.2, 0.6)
            if panel.kind == "timeseries":
                left, right, above, below = (1.7, 0.4, 1.2, 2.6)
            width, height = (w - left - right) / GRID, (h - above - below) / rows
            ax = figure.add_axes(((x + left) / GRID, 1 - (y + h - below) / rows, width, height))
            ax.set_title(panel.title, fontweight="bold")
            lines = lines_of(panel, ask)
            if panel.kind == "stat":
                _draw_number(ax, panel, lines)
            else:
                _draw_lines(ax, panel, lines)
                corner = (x + 0.3) / GRID, 1 - (y + h - below + 0.7) / rows
                ax.legend(
                    loc="upper left",
                    bbox_to_anchor=corner,
                    ncols=2,
                    bbox_transform=figure.transFigure,
                )
    return figure


def _draw_number(ax: Axes, panel: Panel, lines: list[Line]) -> None:
    ax.set_axis_off()
    for line in lines[:1]:
        last = line.values[-1]
        colour = COLOURS[next((c for value, c in reversed(panel.steps) if last >= value), "text")]
        ax.fill_between(line.seconds, line.values, color=colour, alpha=0.15, linewidth=0)
        ax.set_ylim(0, 2.5 * max(_known(line)) or 1)
        said = ax.text(0.5, 0.55, written(last, panel.unit), color=colour, fontsize=22)
        said.set(ha="center", va="center", transform=ax.transAxes)


def _draw_lines(ax: Axes, panel: Panel, lines: list[Line]) -> None:
    labels = [_legend(line, panel.unit) for line in lines]
    if panel.is_stacked:
        times = sorted({second for line in lines for second in line.seconds})
        known = [dict(zip(line.seconds, line.values, strict=True)) for line in lines]
        heights = [[each.get(second, 0.0) for second in times] for each in known]
        ax.stackplot(times, heights, labels=labels, alpha=0.55)
    else:
        for line, label in zip(lines, labels, strict=True):
            ax.plot(line.seconds, line.values, label=label, linewidth=1.3)
    ax.set_ylim(bottom=0)
    if panel.most is not None:
        ax.set_ylim(top=panel.most * 1.02)
    ax.xaxis.set_major_locator(MultipleLocator(60))
    ax.xaxis.set_major_formatter(lambda second, _: time.strftime("%H:%M", time.localtime(second)))
    ax.yaxis.set_major_formatter(lambda value, _: written(value, panel.unit))


def _legend(line: Line, unit: str) -> str:
    known = _known(line)
    mean = sum(known) / len(known)
    return f"{line.label} (mean {written(mean, unit)}, max {written(max(known), unit)})"


def _known(line: Line) -> list[float]:
    """Return the values that are numbers: a share of nothing is none."""
    return [value for value in line.values if not math.isnan(value)] or [0.0]


def written(value: float, unit: str) -> str:
    """Write a value in a unit of Grafana's."""
    if math.isnan(value):
        return "-"
    if unit == "percentunit":
        return f"{value:.0%}" if value >= 0.095 or not value else f"{value:.1%}"
    if unit == "s":
        return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"
    return f"{value:.3g}{' ops/s' if unit == 'ops' else ''}"


def digest() -> str:
    """Return what tells this dashboard from another: the picture carries it."""
    return hashlib.sha256(DASHBOARD.read_bytes()).hexdigest()


def main() -> None:
    """Serve, load, ask and draw."""
    with (
        TemporaryDirectory() as folder,
        served.shop(Path(folder)) as (port, server),
        served.prometheus(Path(folder), port) as ask,
    ):
        began = time.time()
        served.put_load(port, server)
        figure = draw(lambda expression: ask(expression, began + 20, time.time()))
    figure.savefig(PICTURE, dpi=75, metadata={"Source": digest()})


if __name__ == "__main__":
    main()
