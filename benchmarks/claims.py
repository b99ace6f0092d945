"""Claims: a figure of one run, its spread over the rounds, and its target."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """The median over the rounds, and the quartiles between which half of the rounds are."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, rounds: Iterable[float]) -> Spread:
        """Return the spread of one figure for each round."""
        figures = [*rounds]
        if len(figures) == 1:
            return cls(figures[0], figures[0], figures[0])
        low, median, high = statistics.quantiles(figures, n=4, method="inclusive")
        return cls(median, low, high)

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.median:.3g}"
        return f"{self.median:.3g} ({self.low:.3g} to {self.high:.3g})"


@dataclass(frozen=True, slots=True)
class Claim:
    """A figure with its target."""

    what: str
    measured: Spread
    target: float
    at_least: bool = False

    @property
    def verdict(self) -> str:
        """Whether the median reaches the target, and if not, whether the spread does."""
        best = self.measured.high if self.at_least else self.measured.low
        if self._reaches(self.measured.median):
            return "reached"
        return "within its spread" if self._reaches(best) else "not reached"

    def _reaches(self, figure: float) -> bool:
        return figure >= self.target if self.at_least else figure <= self.target

    def row(self) -> str:
        """Return the claim as a row of a Markdown table."""
        sign = "≥" if self.at_least else "≤"
        verdict = self.verdict if self.verdict != "not reached" else "**not reached**"
        return f"| {self.what} | {self.measured} | {sign} {self.target:g} | {verdict} |"

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        return f"{self.what}: {self.measured} ({sign} {self.target:g}: {self.verdict})"
