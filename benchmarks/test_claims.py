"""A claim is judged by its median, and excused by its spread."""

from __future__ import annotations

import pytest

from benchmarks.claims import Claim, Spread


def test_a_spread_has_the_median_and_the_quartiles() -> None:
    assert Spread.of([5, 1, 4, 2, 3]) == Spread(3, 2, 4)
    assert Spread.of([7]) == Spread(7, 7, 7)


@pytest.mark.parametrize(
    ("target", "at_least", "verdict"),
    [
        (3, False, "reached"),
        (2.5, False, "within its spread"),
        (1.9, False, "not reached"),
        (3, True, "reached"),
        (3.5, True, "within its spread"),
        (4.1, True, "not reached"),
    ],
)
def test_a_figure_within_its_spread_of_the_target_is_no_failure(
    target: float, at_least: bool, verdict: str
) -> None:
    assert Claim("some figure", Spread(3, 2, 4), target, at_least).verdict == verdict
