"""The numbers of limits, and the integers that they become."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given

from flask_bucket.durations import Number
from flask_bucket.errors import ConfigError
from flask_bucket.limits import EXACT, Limit
from tests.property.worlds import limits

DAY = 86_400


@pytest.mark.parametrize(
    ("number", "exact"),
    [
        (1, 1),
        (0.1, Fraction(1, 10)),
        (Decimal("0.1"), Fraction(1, 10)),
        (Fraction(1, 4), Fraction(1, 4)),
    ],
)
def test_a_number_is_read_exactly_and_a_float_as_its_decimal_text(
    number: Number, exact: Fraction
) -> None:
    assert Limit(1, number).refill_rate == exact
    assert Limit(1, 1, number).per == exact


@pytest.mark.parametrize("capacity", [20, 20.0, Decimal(20), Fraction(20)])
def test_a_capacity_is_any_whole_number(capacity: Number) -> None:
    assert Limit(capacity, 1).capacity == 20
    assert type(Limit(capacity, 1).capacity) is int


@pytest.mark.parametrize("capacity", [0, -1, 0.5, 1.5, Fraction(1, 3)])
def test_a_capacity_that_is_not_whole_or_below_one_is_refused(capacity: Number) -> None:
    with pytest.raises(ConfigError, match="whole number of tokens of at least 1, not") as refused:
        Limit(capacity, 1)
    assert repr(capacity) in str(refused.value)
    assert "Limit(capacity=1, refill_rate=0.5)" in str(refused.value)


@pytest.mark.parametrize("number", [0, -1, -0.5, 0.0])
def test_a_rate_or_period_not_above_zero_is_refused(number: Number) -> None:
    with pytest.raises(ConfigError, match="refill_rate is above 0, not"):
        Limit(1, number)
    with pytest.raises(ConfigError, match="per is above 0, not"):
        Limit(1, 1, number)


@pytest.mark.parametrize(
    "number", [float("inf"), float("nan"), Decimal("Infinity"), Decimal("NaN")]
)
def test_a_number_that_is_not_finite_is_refused(number: Number) -> None:
    with pytest.raises(ConfigError, match="finite number"):
        Limit(1, number)


@pytest.mark.parametrize("number", ["1", None, True, 1j, [1]])
def test_anything_but_a_number_is_refused(number: object) -> None:
    for arguments in ((number, 1), (1, number), (1, 1, number)):
        with pytest.raises(ConfigError, match=r"is a number \(int, float, Decimal or Fraction\)"):
            Limit(*arguments)


@pytest.mark.parametrize(
    ("limit", "numbers"),
    [
        (Limit(20, 5), (1, 200_000, 1)),
        (Limit(10, 1.9), (1, 10_000_000, 19)),
        (Limit(7, 7, 3), (1, 3_000_000, 7)),
        (Limit(1, 2000), (1, 500, 1)),
        (Limit(10_007, 10_007, 30 * DAY), (1_000, 2_592_000_000, 10_007)),
        (Limit(1_000_000, 1, 365 * DAY), (1_000_000, 31_536_000, 1)),
    ],
)
def test_a_limit_is_counted_in_the_finest_tick_that_stays_exact(
    limit: Limit, numbers: tuple[int, int, int]
) -> None:
    assert (limit.tick, limit.scale, limit.step) == numbers


@given(limits())
def test_every_accepted_limit_is_exact(limit: Limit) -> None:
    assert limit.full == limit.capacity * limit.scale
    assert limit.full + limit.step < EXACT
    assert Fraction(limit.step, limit.scale) == limit.rate * Fraction(limit.tick, 1_000_000)


def test_a_limit_that_cannot_be_exact_is_refused_with_its_numbers() -> None:
    with pytest.raises(ConfigError, match=r"capacity 9007199254740993 .*below 2\*\*53"):
        Limit(EXACT + 1, 1)
    with pytest.raises(ConfigError, match="cannot be counted exactly"):
        Limit(10**8, Fraction(10**9 + 7, 10**9 + 9))


def test_the_largest_exact_capacity_is_accepted() -> None:
    assert Limit(EXACT - 2, 10**6).scale == 1
    with pytest.raises(ConfigError):
        Limit(EXACT - 1, 10**6 + 1)


def test_a_share_of_a_limit_is_rounded_down_but_never_to_zero() -> None:
    limit = Limit(10, 5, 2, name="mine")
    assert limit.scaled(0.25) == Limit(2, Fraction(5, 4), 2, name="mine")
    assert limit.scaled(Fraction(1, 100)).capacity == 1
    with pytest.raises(ConfigError, match="share is above 0"):
        limit.scaled(0)


def test_rate_and_time_to_full_are_exact() -> None:
    limit = Limit(7, 7, 3)
    assert (limit.rate, limit.seconds_to_full) == (Fraction(7, 3), Fraction(3))


def test_a_limit_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Limit(1, 1).capacity = 2  # type: ignore[misc]
