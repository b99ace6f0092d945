"""The share of a limit that one worker grants."""

from __future__ import annotations

from fractions import Fraction

import pytest

from flask_bucket.errors import StoreUnavailable
from flask_bucket.limits import Limit
from flask_bucket.stores.outage import OutageStore, share_of
from tests.outage.policies.conftest import CHARGE, Clock, Fickle


@pytest.mark.parametrize("share", ["0.25", "1/3", "1/7", "0.0001", "0.9999", "123457/999983"])
@pytest.mark.parametrize(
    "limit",
    [
        Limit.parse("10007 per 30 days"),
        Limit.parse("5/second burst 20"),
        Limit.parse("7 per 13 seconds"),
        Limit.parse("9999991/day burst 900000000"),
        Limit(10**15, 10**6, 3, "rapid"),
        Limit(3 * 10**15, 1, 3, "slow"),
    ],
    ids=str,
)
def test_a_share_is_never_too_much_nor_an_error(limit: Limit, share: str) -> None:
    part, fraction = share_of(limit, Fraction(share)), Fraction(share)
    capacity = max(1, int(limit.capacity * fraction))
    assert capacity / 2 < part.capacity <= capacity
    assert limit.rate * fraction / 2 < part.rate <= limit.rate * fraction
    assert part.name == limit.name


@pytest.mark.parametrize("share", [0.25, 1 / 3, 0.0001])
def test_a_share_of_a_usual_limit_is_exact(share: float) -> None:
    limit, fraction = Limit.parse("7/day"), Fraction(str(share)).limit_denominator(1_000_000)
    assert share_of(limit, fraction).rate == limit.rate * fraction


def test_a_share_that_fills_in_no_lifetime_is_no_error() -> None:
    assert share_of(Limit(900_000, 1, 10**10, "aeons"), Fraction(1, 10**6)).capacity == 1


def test_a_third_is_a_share(fickle: Fickle, clock: Clock) -> None:
    store = OutageStore(fickle, "local", local_share=1 / 3, clock=clock)
    fickle.error = StoreUnavailable("gone")
    assert [store.take([CHARGE]).allowed for _ in range(4)] == [True, True, True, False]
