"""Limits: their numbers, their text, their names, and what is refused."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given

from flask_bucket.errors import ConfigError
from flask_bucket.limits import EXACT, NAME, Limit, Number, distinct_names
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


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("5/second", "per-second"),
        ("5/second burst 20", "per-second"),
        ("1 per 15 minutes", "per-15-minutes"),
        ("1 per 600 ms", "per-600-ms"),
        ("1/60 s", "per-minute"),
        ("1/90 s", "per-90-seconds"),
        ("1/30 days", "per-month"),
        ("1/14 days", "per-2-weeks"),
        ("1/ms", "per-ms"),
        ("1/0.5ms", "per-0.5-ms"),
    ],
)
def test_a_limit_is_named_after_its_period(text: str, name: str) -> None:
    assert Limit.parse(text).name == name


@given(limits())
def test_every_period_has_a_valid_name(limit: Limit) -> None:
    assert NAME.fullmatch(limit.name)


@pytest.mark.parametrize("name", ["a", "per-second", "x.y_z-1"])
def test_a_name_may_be_given(name: str) -> None:
    assert Limit(1, 1, name=name).name == name
    assert Limit.parse("1/s", name=name).name == name


@pytest.mark.parametrize(
    "name", ["", "A", "1a", "-a", "a b", "a:b", "a{b", "a\n", "\u00e4", 5, True]
)
def test_an_invalid_name_is_refused(name: object) -> None:
    with pytest.raises(ConfigError, match="name is lower-case letters") as refused:
        Limit(1, 1, name=name)  # type: ignore[call-overload]
    assert repr(name) in str(refused.value)


def test_limits_with_different_names_are_different() -> None:
    assert Limit(1, 1) == Limit(1, 1)
    assert Limit(1, 1) != Limit(1, 1, name="other")
    assert hash(Limit(1, 1)) == hash(Limit(1.0, 1.0))


def test_limits_that_would_share_a_bucket_are_told_apart() -> None:
    names = [x.name for x in distinct_names(Limit.parse_many("1/s; 2/s; 1/m; 3/s"))]
    assert names == ["per-second", "per-second-2", "per-minute", "per-second-3"]


def test_a_limit_added_after_others_changes_none_of_their_names() -> None:
    some = Limit.parse_many("1/s; 2/s")
    assert distinct_names((*some, Limit(3, 3)))[:2] == distinct_names(some)


def test_a_name_that_looks_like_a_numbered_one_is_not_given_twice() -> None:
    taken = (Limit(1, 1, name="x-2"), Limit(1, 1, name="x"), Limit(2, 2, name="x"))
    assert [x.name for x in distinct_names(taken)] == ["x-2", "x", "x-3"]


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
