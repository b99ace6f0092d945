"""Pictures of a simulation: requests and refusals over time, and the peaks of clients."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..limits import SECOND, Limit
from .output import Failure
from .replay import peak, refused_times
from .traffic import Traffic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.ticker import FuncFormatter

#: The formats of pictures, for the option's help and its errors.
FORMATS = ".png, .svg or .pdf"
_SUFFIXES = (".png", ".svg", ".pdf")
#: Bars over the whole time. More bars could not be told apart.
_BINS = 120
#: Seconds that a bar may stand for: round numbers, for a readable axis.
_LENGTHS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)
#: Colours that colour-blind people tell apart (Okabe and Ito).
_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_GREY = "#BBBBBB"


def checked_plot(name: str) -> Path:
    """Return the path of a picture, checked before a long log is read.

    :raises Failure: without matplotlib, or if the picture cannot be written there.
    """
    if find_spec("matplotlib") is None:
        raise Failure("--plot needs matplotlib: pip install 'flask-bucket[plot]'.", 1) from None
    path = Path(name)
    if path.suffix.lower() not in _SUFFIXES:
        raise Failure(f"--plot: {name} is not the name of a picture. Expected {FORMATS}.")
    if not path.parent.is_dir():
        raise Failure(f"--plot: there is no directory {path.parent}.")
    return path


def plot(path: Path, traffic: Traffic, limits: Sequence[Limit]) -> None:
    """Draw sorted traffic, and the refusals of each limit."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 8), layout="constrained")
    over_time, peaks = figure.subplots(2, 1)
    _draw_time(over_time, traffic, limits)
    _draw_peaks(peaks, traffic, limits)
    figure.savefig(path, dpi=120)


def _draw_time(axes: Axes, traffic: Traffic, limits: Sequence[Limit]) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    begin = min(times[0] for times in traffic.times.values()) // SECOND
    end = max(times[-1] for times in traffic.times.values()) // SECOND
    length = _length((end - begin) // _BINS + 1)
    begin -= begin % length
    count = (end - begin) // length + 1
    edges = [datetime.fromtimestamp(begin + i * length, UTC) for i in range(count + 1)]

    def binned(times_of_clients: Sequence[array[int]]) -> list[int]:
        bins = [0] * count
        for times in times_of_clients:
            for at in times:
                bins[(at // SECOND - begin) // length] += 1
        return bins

    requests = binned(list(traffic.times.values()))
    axes.stairs(requests, edges, fill=True, color=_GREY, label="requests")  # type: ignore[arg-type]  # dates are edges too
    for n, limit in enumerate(limits):
        refused = binned([refused_times(times, limit)[0] for times in traffic.times.values()])
        axes.stairs(
            refused,
            edges,  # type: ignore[arg-type]  # dates are edges too
            color=_COLOURS[n % len(_COLOURS)],
            linewidth=1.5,
            label=f"refused by {limit} ({sum(refused):,})",
        )
    axes.yaxis.set_major_formatter(_numbers())
    locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]  # matplotlib's
    axes.xaxis.set_major_locator(locator)
    written = ConciseDateFormatter(locator, tz=UTC)  # type: ignore[no-untyped-call]  # matplotlib's
    axes.xaxis.set_major_formatter(written)
    axes.set_title(f"Requests and refusals: {sum(requests):,} requests")
    axes.set_xlabel("time (UTC)")
    axes.set_ylabel(f"requests in each {_period(length)}")
    axes.set_ylim(bottom=0)
    _legend(axes)


def _draw_peaks(axes: Axes, traffic: Traffic, limits: Sequence[Limit]) -> None:
    """Draw the number of clients for which each burst is too small, one line for each rate."""
    drawn: dict[Fraction, Counter[int]] = {}
    highest = 1
    for n, limit in enumerate(limits):
        colour = _COLOURS[n % len(_COLOURS)]
        if limit.rate not in drawn:
            peaks = Counter(peak(times, limit) for times in traffic.times.values())
            drawn[limit.rate] = peaks
            _draw_affected(axes, peaks, colour, f"at the rate of {_rate(limit)}")
        peaks = drawn[limit.rate]
        highest = max(highest, limit.capacity, *peaks)
        affected = sum(count for needed, count in peaks.items() if needed > limit.capacity)
        label = f"{limit} ({affected:,})"
        axes.plot(limit.capacity, affected, "o", color=colour, label=label, clip_on=False)
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=1)
    axes.set_xlim(0.9, highest * 1.2)
    axes.set_ylim(bottom=0)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(_numbers())
    axes.set_title(
        f"Client peaks: for how many of {len(traffic.times):,} clients a burst is too small"
    )
    axes.set_xlabel("burst")
    axes.set_ylabel("clients with refusals")
    _legend(axes)


def _draw_affected(axes: Axes, peaks: Counter[int], colour: str, label: str) -> None:
    bursts = sorted(peaks)
    more = [sum(peaks[b] for b in bursts[i:]) for i in range(len(bursts))]
    axes.stairs(more, [0.5, *bursts], color=colour, linewidth=1.5, label=label)


def _numbers() -> FuncFormatter:
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(lambda value, _: f"{value:,.10g}")


def _legend(axes: Axes) -> None:
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)


def _rate(limit: Limit) -> str:
    """Return a limit's text without its burst."""
    return str(limit).partition(" burst ")[0]


def _length(least: int) -> int:
    return next((length for length in _LENGTHS if length >= least), -(-least // 86_400) * 86_400)


def _period(length: int) -> str:
    for unit, seconds in (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1)):
        if length % seconds == 0:
            return unit if length == seconds else f"{length // seconds} {unit}s"
    raise AssertionError
