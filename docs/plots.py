"""Draws the documentation's plots from the reference bucket: ``python docs/plots.py``.

Each picture is a function of the arithmetic and of nothing else, so drawing them again changes
them only when the bucket changes. The limiters that are shown beside it are written down here,
as plainly as possible.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import matplotlib as mpl

from flask_bucket import Charge, Limit, bucket
from flask_bucket.bucket import State

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FOLDER = Path(__file__).parent / "images"
SECOND = 1_000_000

BLUE, GREEN, RED, GREY = "#2a6f97", "#2d7d46", "#c1121f", "#8d99ae"

STYLE: dict[Any, Any] = {
    "figure.dpi": 100,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "svg.hashsalt": "flask_bucket",  # else each drawing has other ids
    "savefig.facecolor": "white",  # readable on dark pages too
}


class Limiter(Protocol):
    """Anything that decides about requests at given times, in seconds."""

    def allows(self, second: float) -> bool:
        """Return whether a request at this time may pass, and count it."""


class Bucket:
    """One client's bucket, decided by the package's own reference."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.states: dict[str, State] = {}

    def allows(self, second: float) -> bool:
        charge = Charge(self.limit, "client")
        decision, writes = bucket.take(self.states, [charge], round(second * SECOND))
        self.states |= {key: state for key, state in writes.items() if isinstance(state, State)}
        return decision.allowed

    def level(self, second: float) -> float:
        """Return the tokens in the bucket, with the part of one that is on its way."""
        state, _ = bucket.refresh(self.limit, self.states.get("client"), round(second * SECOND))
        return state.tokens / state.scale


class FixedWindow:
    """Counts the requests that it allows in windows that begin at whole multiples."""

    def __init__(self, amount: int, seconds: float) -> None:
        self.amount, self.seconds = amount, seconds
        self.counts: Counter[int] = Counter()

    def allows(self, second: float) -> bool:
        window = int(second // self.seconds)
        if self.counts[window] >= self.amount:
            return False
        self.counts[window] += 1
        return True

    def level(self, second: float) -> float:
        """Return how many more requests the window of this time would allow."""
        return self.amount - self.counts[int(second // self.seconds)]


class SlidingWindow:
    """Remembers when it allowed what, and counts the last so many seconds."""

    def __init__(self, amount: int, seconds: float) -> None:
        self.amount, self.seconds = amount, seconds
        self.log: deque[float] = deque()

    def allows(self, second: float) -> bool:
        self._forget(second)
        if len(self.log) >= self.amount:
            return False
        self.log.append(second)
        return True

    def level(self, second: float) -> float:
        self._forget(second)
        return self.amount - len(self.log)

    def _forget(self, second: float) -> None:
        while self.log and self.log[0] <= second - self.seconds:
            self.log.popleft()


def evenly(start: float, end: float, count: int) -> list[float]:
    """Return so many moments from start to before end, the same time apart."""
    return [start + (end - start) * n / count for n in range(count)]


def trace(
    limiter: Any, moments: Iterable[float], end: float, step: float = 0.02
) -> tuple[list[float], list[float], list[float], list[float]]:
    """Send requests; return times and levels of the limiter, and what passed and what did not.

    The level is looked at often, and just before and after each request, so that it drops upright.
    """
    times: list[float] = []
    levels: list[float] = []
    allowed: list[float] = []
    refused: list[float] = []
    marks = [(moment, True) for moment in moments]
    marks += [(step * n, False) for n in range(int(end / step) + 1)]
    for second, is_request in sorted(marks):
        times.append(second)
        levels.append(limiter.level(second))
        if is_request:
            (allowed if limiter.allows(second) else refused).append(second)
            times.append(second)
            levels.append(limiter.level(second))
    return times, levels, allowed, refused


def most_in_any(moments: Sequence[float], seconds: float) -> int:
    """Return the largest number of moments within any stretch of so many seconds."""
    return max(sum(a <= b < a + seconds for b in moments) for a in moments)


def boundary_traffic() -> list[float]:
    """Ten requests just before a window's end at 10 s, ten just after, then one a second."""
    return [*evenly(9.0, 10.0, 10), *evenly(10.0, 11.0, 10), *evenly(12.5, 20.0, 8)]


def draw_against_fixed_window() -> Figure:
    """The README's picture: the same requests, by a bucket and by a fixed window."""
    figure, axes = _axes(2, (8, 4.6))
    limiters: list[tuple[Any, str, str]] = [
        (Bucket(Limit(10, 1)), "Token bucket: 10 tokens, 1 more each second", "tokens"),
        (FixedWindow(10, 10), "Fixed window: 10 requests in 10 seconds", "left in window"),
    ]
    for ax, (limiter, title, unit) in zip(axes, limiters, strict=True):
        times, levels, allowed, refused = trace(limiter, boundary_traffic(), 19.9)
        _level(ax, times, levels, unit)
        _marks(ax, allowed, refused)
        most = most_in_any(allowed, 2)
        ax.set_title(f"{title} — at most {most} pass within 2 seconds")
        ax.axvline(10, color=GREY, linewidth=0.8, linestyle=":")
        ax.set_xlim(8, 20)
    axes[-1].set_xlabel("seconds")
    _legend(axes[0])
    return figure


def draw_level() -> Figure:
    """One burst, refusals while the bucket is empty, and the way back to full."""
    figure, (ax,) = _axes(1, (8, 3))
    moments = [*evenly(1.0, 2.0, 30), 3.5, 4.0, 8.0]
    times, levels, allowed, refused = trace(Bucket(Limit.parse("5/second burst 20")), moments, 10)
    _level(ax, times, levels, "tokens")
    _marks(ax, allowed, refused)
    ax.set_title("5/second burst 20: 30 requests within one second, then a few")
    ax.set_xlabel("seconds")
    _legend(ax)
    return figure


def draw_bursts() -> Figure:
    """Twelve requests every four seconds: with headroom above the average, and without."""
    figure, axes = _axes(2, (8, 4.6))
    bursts = [second + n * 0.01 for second in range(1, 40, 4) for n in range(12)]
    hiccup = [second + n * 0.01 for second in (10, 11) for n in range(8)]
    for ax, limit in zip(axes, ("5/second burst 20", "3/second burst 20"), strict=True):
        times, levels, allowed, refused = trace(
            Bucket(Limit.parse(limit)), sorted([*bursts, *hiccup]), 40
        )
        _level(ax, times, levels, "tokens")
        _marks(ax, allowed, refused)
        ax.set_title(f"{limit}: {len(refused)} of {len(allowed) + len(refused)} requests refused")
    axes[-1].set_xlabel("seconds")
    _legend(axes[0])
    return figure


def draw_steady() -> Figure:
    """What gets through of steady streams: everything below the rate, the rate above it."""
    figure, (ax,) = _axes(1, (8, 3))
    for offered, colour in ((4, GREEN), (5, BLUE), (8, RED)):
        limiter = Bucket(Limit.parse("5/second burst 20"))
        _, _, allowed, _ = trace(limiter, evenly(0, 20, 20 * offered), 20)
        rates = [sum(start <= a < start + 1 for a in allowed) for start in range(20)]
        ax.step(range(20), rates, where="post", color=colour, label=f"{offered} a second asked for")
    ax.set_ylim(0, 11)
    ax.set_xlim(0, 19)
    ax.set_xticks(range(0, 20, 2))
    ax.set_ylabel("allowed in each second")
    ax.set_xlabel("seconds")
    ax.set_title("5/second burst 20: a burst first, and the rate for ever after")
    ax.legend(loc="upper right", ncols=3)
    return figure


def draw_three_kinds() -> Figure:
    """One impatient client that asks 4 times a second, by three kinds of limiters."""
    figure, axes = _axes(3, (8, 5.4))
    moments = [m + 5.02 for m in evenly(0, 25, 100)]
    limiters: list[tuple[Any, str]] = [
        (Bucket(Limit(10, 1)), "Token bucket: 10 tokens, 1 a second"),
        (SlidingWindow(10, 10), "Sliding window: 10 in the last 10 seconds"),
        (FixedWindow(10, 10), "Fixed window: 10 in each 10 seconds"),
    ]
    for ax, (limiter, title) in zip(axes, limiters, strict=True):
        times, levels, allowed, refused = trace(limiter, moments, 29.9)
        _level(ax, times, levels, "left")
        _marks(ax, allowed, refused)
        gap = max(later - earlier for earlier, later in pairwise(allowed))
        ax.set_title(f"{title} — {len(allowed)} pass, longest gap {gap:.1f} s")
    axes[-1].set_xlabel("seconds")
    _legend(axes[0])
    return figure


def _axes(rows: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, list(figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0])


def _level(ax: Axes, times: list[float], levels: list[float], unit: str) -> None:
    times, levels = _corners(times, levels)
    ax.fill_between(times, levels, color=BLUE, alpha=0.15, linewidth=0)
    ax.plot(times, levels, color=BLUE, linewidth=1.4)
    top = max(levels)
    ax.set_ylim(-0.3 * top, 1.08 * top)
    ax.set_xlim(0, max(times))
    ax.set_ylabel(unit)
    ax.set_yticks([0, top / 2, top])


def _corners(times: list[float], levels: list[float]) -> tuple[list[float], list[float]]:
    """Leave out the points that lie on the line between their neighbours: the files get small."""
    kept = [0]
    for i in range(1, len(times) - 1):
        along = (levels[i] - levels[kept[-1]]) * (times[i + 1] - times[i])
        onward = (levels[i + 1] - levels[i]) * (times[i] - times[kept[-1]])
        if abs(along - onward) > 1e-6:
            kept.append(i)
    kept.append(len(times) - 1)
    return [times[i] for i in kept], [levels[i] for i in kept]


def _marks(ax: Axes, allowed: list[float], refused: list[float]) -> None:
    low = ax.get_ylim()[0]
    ax.scatter(allowed, [low * 0.4] * len(allowed), s=16, color=GREEN, marker="o", label="allowed")
    ax.scatter(refused, [low * 0.75] * len(refused), s=18, color=RED, marker="x", label="refused")


def _legend(ax: Axes) -> None:
    figure = ax.get_figure(root=True)
    assert figure is not None
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower right", ncols=2, handletextpad=0.1)


PLOTS: dict[str, Callable[[], Figure]] = {
    "bucket-against-window": draw_against_fixed_window,
    "level": draw_level,
    "bursts": draw_bursts,
    "steady": draw_steady,
    "three-kinds": draw_three_kinds,
}


def draw(folder: Path = FOLDER) -> list[Path]:
    """Draw all plots into a folder, and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    with mpl.rc_context(STYLE):
        for name, plot in PLOTS.items():
            file = folder / f"{name}.svg"
            plot().savefig(file, format="svg", metadata={"Date": None})
            files.append(file)
    return files


if __name__ == "__main__":
    draw()
