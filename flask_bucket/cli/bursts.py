"""Bursts: the one rule on how small a burst may be, for the doctor's advice and for suggestions."""

from __future__ import annotations

from ..limits import Limit


def least_burst(limit: Limit) -> int:
    """Return the burst below which clients that keep to the rate, but unevenly, are refused.

    It is two seconds' worth of a rate of 1/second or more. Slower rates need none: 1.
    """
    if limit.rate < 1:
        return 1
    return -(-2 * limit.rate.numerator // limit.rate.denominator)
