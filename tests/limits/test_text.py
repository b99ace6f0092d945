"""The texts of limits, and what is refused."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given

from flask_bucket.errors import ConfigError
from flask_bucket.limits import Limit
from tests.property.worlds import AWKWARD, limits

MINUTE, HOUR, DAY = 60, 3_600, 86_400


@pytest.mark.parametrize(
    ("text", "capacity", "rate", "per"),
    [
        ("5/second", 5, 5, 1),
        ("5/second burst 20", 20, 5, 1),
        ("100 per 15 minutes", 100, 100, 15 * MINUTE),
        ("10/s", 10, 10, 1),
        ("10/sec", 10, 10, 1),
        ("1000/hour burst 2000", 2000, 1000, HOUR),
        ("1/m", 1, 1, MINUTE),
        ("1/min", 1, 1, MINUTE),
        ("2 per 10 mins", 2, 2, 10 * MINUTE),
        ("3/h", 3, 3, HOUR),
        ("3/d", 3, 3, DAY),
        ("3/w", 3, 3, 7 * DAY),
        ("3/month", 3, 3, 30 * DAY),
        ("3/year", 3, 3, 365 * DAY),
        ("3/2 years", 3, 3, 730 * DAY),
        ("1/100ms", 1, 1, Fraction(1, 10)),
        ("1 per 0.5 ms", 1, 1, Fraction(1, 2000)),
        ("1.9/s burst 4", 4, Fraction(19, 10), 1),
        ("  5  /  SECONDS   BURST  20 ", 20, 5, 1),
        ("5 Per Second", 5, 5, 1),
    ],
)
def test_text_is_read_as_a_limit(
    text: str, capacity: int, rate: int | Fraction, per: int | Fraction
) -> None:
    limit = Limit.parse(text)
    assert (limit.capacity, limit.refill_rate, limit.per) == (capacity, rate, per)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "5/",
        "/second",
        "5 second",
        "5/fortnight",
        "-5/second",
        "5/-1 second",
        "5/second burst",
        "5/second burst -1",
        "5/second burst 1.5",
        "five/second",
        "5//second",
        "5/second 20",
        "5persecond",
        "1e3/second",
        "5/second; ",
        "\u0665/second",  # an Arabic five is a digit to Python
    ],
)
def test_bad_text_is_refused_with_the_text_and_the_expected_form(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Limit.parse(text)
    assert f'"{text}" is not a limit' in str(refused.value)
    assert 'expected "<amount>/<unit>"' in str(refused.value)
    assert "5/second burst 20" in str(refused.value)


def test_an_unknown_unit_is_named() -> None:
    with pytest.raises(ConfigError, match='unknown unit "fortnight"'):
        Limit.parse("5/fortnight")


def test_an_amount_that_is_not_whole_needs_a_burst_and_the_error_suggests_one() -> None:
    with pytest.raises(ConfigError, match=r'Add one, such as "0\.5/second burst 1"'):
        Limit.parse("0.5/second")


@pytest.mark.parametrize(
    "text", ["0/second", "0/second burst 5", "5/0 seconds", "5/second burst 0"]
)
def test_zeros_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a limit"):
        Limit.parse(text)


@pytest.mark.parametrize("text", ["5/second burst 20", "100 per 15 minutes", "0.5/s burst 1"])
def test_a_text_in_place_of_the_numbers_is_parsed(text: str) -> None:
    assert Limit(text) == Limit.parse(text)
    assert Limit(text, name="plan") == Limit.parse(text, name="plan")


def test_the_repr_of_a_limit_makes_the_same_limit() -> None:
    limit = Limit(20, 5, name="search")
    assert eval(repr(limit)) == limit


def test_a_bad_text_in_place_of_the_numbers_is_refused() -> None:
    with pytest.raises(ConfigError, match='"5/fortnight" is not a limit'):
        Limit("5/fortnight")


def test_a_text_goes_with_no_numbers() -> None:
    with pytest.raises(ConfigError, match="capacity is a number"):
        Limit("5/second", per=60)  # type: ignore[call-overload]


@pytest.mark.parametrize("value", [None, 5, b"5/second", ["5/second"]])
def test_only_text_is_parsed(value: object) -> None:
    with pytest.raises(ConfigError, match="is not a limit's text"):
        Limit.parse(value)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is not a limit's text"):
        Limit.parse_many(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("separator", [";", ",", " ; ", ", "])
def test_several_limits_are_read_from_one_text(separator: str) -> None:
    assert Limit.parse_many(f"10/s{separator}1000/hour burst 2000") == (
        Limit(10, 10),
        Limit(2000, 1000, HOUR),
    )


@pytest.mark.parametrize("text", ["10/s;", "10/s;;1/h", ",", "10/s; nonsense"])
def test_one_bad_limit_among_several_is_refused_with_the_whole_text(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Limit.parse_many(text)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize("text", ["often", "5/fortnight", "0/s"])
def test_a_single_bad_limit_is_named_once(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Limit.parse_many(text)
    assert str(refused.value).count(text) == 1


@given(limits())
def test_the_text_of_a_limit_is_read_back_as_the_same(limit: Limit) -> None:
    assert Limit.parse(str(limit)) == limit


@pytest.mark.parametrize("limit", AWKWARD, ids=str)
def test_the_repr_says_the_same_as_the_text(limit: Limit) -> None:
    assert repr(limit) == f"Limit('{limit}')"
    assert repr(limit.named("mine")) == f"Limit('{limit}', name='mine')"


def test_the_text_has_a_burst_only_if_the_capacity_is_not_the_amount() -> None:
    assert str(Limit(5, 5)) == "5/second"
    assert str(Limit(20, 5)) == "5/second burst 20"
    assert str(Limit(100, 100, 900)) == "100 per 15 minutes"
    assert str(Limit(1, Fraction(1, 3))) == "1 per 3 seconds"


@pytest.mark.parametrize(
    "limit", [Limit(1, Fraction(1, 2**40)), Limit(1, 5e-324, 5e-324), Limit(1, 1e300, 1e300)]
)
def test_numbers_of_many_digits_are_read_back(limit: Limit) -> None:
    """A regression: a text of more than 30 decimals was not."""
    assert Limit.parse(str(limit)) == limit


def test_text_of_absurd_length_is_refused_at_once() -> None:
    for text in ("9" * 10_000 + "/second", "9" * 10_000, "1" + " " * 1_000 + "x"):
        with pytest.raises(ConfigError, match="is not a limit"):
            Limit.parse(text)
