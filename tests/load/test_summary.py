"""The summary of the latencies."""

from __future__ import annotations

import pytest

from benchmarks import load


def test_percentiles_are_nearest_rank() -> None:
    eighths = [number / 8 for number in reversed(range(1, 101))]
    assert load.summarise(eighths) == load.Latencies(
        min=125, mean=6312.5, p50=6250, p95=11875, p97_5=12250, p99=12375, max=12500
    )


@pytest.mark.parametrize(
    ("size", "percent", "rank"),
    [(1, 50, 1), (1, 99, 1), (2, 50, 1), (2, 95, 2), (3, 50, 2), (20, 95, 19), (40, 97.5, 39)],
)
def test_percentiles_of_a_small_sample(size: int, percent: float, rank: int) -> None:
    assert load.percentile(range(1, size + 1), percent) == rank


def test_a_single_latency_is_every_figure() -> None:
    assert load.summarise([0.5]) == load.Latencies(500, 500, 500, 500, 500, 500, 500)
