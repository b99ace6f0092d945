"""Limits on requests at once, as values and as texts."""

from __future__ import annotations

import pickle
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from flask_bucket import AtOnce, ConfigError, Limit, Rule
from flask_bucket.at_once import parse_many
from flask_bucket.bound import read_numbers
from flask_bucket.rules import rules_of


def test_a_number_at_once_has_slots_that_are_free_after_a_minute() -> None:
    five = AtOnce(5)
    assert (five.capacity, int(five.holds), five.lasts, five.name) == (5, 60, 60_000_000, "at-once")


@pytest.mark.parametrize("text", ["5 at once", "5 AT  ONCE", " 5 at\tonce "])
def test_a_number_at_once_is_read(text: str) -> None:
    assert parse_many(text) == (AtOnce(5),)


def test_the_text_of_a_number_at_once_reads_back() -> None:
    assert parse_many(str(AtOnce(12))) == (AtOnce(12),)


@pytest.mark.parametrize("text", ["10/second; 3 at once", "10/second,3 at once"])
def test_a_number_at_once_stands_beside_rates(text: str) -> None:
    assert parse_many(text) == (Limit("10/second"), AtOnce(3))


@pytest.mark.parametrize(
    "text",
    [
        "at once",
        "5at once",
        "5 atonce",
        "1.5 at once",
        "-1 at once",
        "five at once",
        "5 at once burst 9",
        "5 at once holds 30",
        "5/second at once",
        "5 concurrent",
        "5 at a  time",
        "3 at the same time",
        "5 in flight",
        "5 at once; 5 concurrently",
    ],
)
def test_another_text_is_told_how_a_number_at_once_is_written(text: str) -> None:
    with pytest.raises(ConfigError, match=r'two words, such as "5 at once", .* option: holds=60'):
        Rule(text)
    with pytest.raises(ConfigError, match='such as "5 at once"'):
        Limit(text)


def test_a_ban_in_the_place_of_a_limit_is_told_where_to_stand() -> None:
    for text in ("20/hour for 1 day", "5 at once for 1 day"):
        with pytest.raises(ConfigError, match='ban="20/hour for 1 day", or Limiter'):
            Rule(text)


def test_none_at_once_would_allow_nothing() -> None:
    with pytest.raises(ConfigError, match="at least 1, not 0"):
        Rule("0 at once")


@pytest.mark.parametrize("number", [0, -1, 1.5, 2.0, True, "5", None])
def test_a_number_of_slots_is_a_whole_number(number: Any) -> None:
    with pytest.raises(ConfigError, match="at least 1, not"):
        AtOnce(number)


@pytest.mark.parametrize(
    "holds",
    [
        *(0, -1, float("nan"), float("inf"), True, "60", 86_401, 10**400, None),
        *map(Decimal, ("NaN", "sNaN", "-Infinity", "1e999999", "1e-999999")),
        *(1e-300, Fraction(1, 10**9)),
    ],
)
def test_slots_are_held_for_a_microsecond_to_a_day(holds: Any) -> None:
    with pytest.raises(ConfigError, match=r"^holds is .* from a microsecond \(1e-6\) to a day"):
        AtOnce(5, holds=holds)
    with pytest.raises(ConfigError, match=r"^holds is "):
        Rule("5 at once", holds=holds or 0)


@pytest.mark.parametrize(
    "given", [{"number": 10**40}, {"number": 7, "holds": Fraction(10**20 + 39, 10**20 + 129)}]
)
def test_what_cannot_be_counted_is_told_in_words_of_slots(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"^AtOnce\(.* fewer slots, or a rounder time") as raised:
        AtOnce(**given)
    assert "capacity" not in str(raised.value)


@pytest.mark.parametrize("holds", [0.25, 1, Fraction(1, 3), 86_400])
def test_the_time_of_slots_is_kept_exactly(holds: Any) -> None:
    assert AtOnce(7, holds=holds).holds == Fraction(holds)


def test_a_slot_is_held_for_whole_microseconds_rounded_up() -> None:
    assert AtOnce(1, holds=Fraction(3, 2_000_000)).lasts == 2


def test_values_are_equal_by_what_they_say() -> None:
    assert AtOnce(5) == AtOnce(5, holds=60, name="at-once") != AtOnce(5, holds=30)
    assert AtOnce(5) != Limit(5, 5, 60, "at-once")
    assert len({AtOnce(5), AtOnce(5), AtOnce(6)}) == 2


def test_a_value_is_shown_as_it_is_written() -> None:
    assert repr(AtOnce(5)) == "AtOnce(5)"
    assert repr(AtOnce(5, holds=0.5, name="export")) == "AtOnce(5, holds=0.5, name='export')"


def test_a_value_can_be_sent_to_another_process() -> None:
    value = AtOnce(5, holds=30, name="export")
    assert pickle.loads(pickle.dumps(value)) == value


def test_a_share_has_one_slot_at_least() -> None:
    assert AtOnce(8, holds=30).scaled(0.25) == AtOnce(2, holds=30)
    assert AtOnce(3).scaled(0.25) == AtOnce(1)


def test_a_name_must_be_one() -> None:
    with pytest.raises(ConfigError, match="A limit's name"):
        AtOnce(5, name="At Once")


@pytest.mark.parametrize("text", ["5 at once", "10/second; 5 at once"])
def test_a_rate_is_no_number_at_once(text: str) -> None:
    with pytest.raises(ConfigError, match=r"a rate was expected.*AtOnce\(5\)"):
        Limit.parse_many(text)
    with pytest.raises(ConfigError, match="is not a limit"):
        Limit(text)


def test_a_rule_says_how_long_its_slots_are_held() -> None:
    assert Rule("10/second; 3 at once", holds=5).limits == (Limit("10/second"), AtOnce(3, holds=5))
    assert Rule([AtOnce(3), "1/day"], name="n").limits == (
        AtOnce(3, name="n"),
        Limit("1/day", name="n"),
    )


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("5 at once", {"cost": 2}),
        ("5 at once", {"cost": lambda: 1}),
        ("5 at once", {"deduct_when": lambda response: True}),
        ("5 at once", {"low": 0.8}),
        ("5 at once", {"lease": 0.1}),
        ("5/second; 5 at once", {"lease": 0.1}),
        ("5 at once", {"burst": 9}),
        ("5/second; 5 at once", {"burst": 9}),
        ("5/second", {"holds": 9}),
        ("5 at once", {"holds": 0}),
        (lambda: "5 at once", {"holds": 0}),
    ],
)
def test_options_that_do_not_go_with_requests_at_once_are_errors(rule: Any, options: Any) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        Rule(rule, **options)


def test_a_rule_is_not_given_another_time_where_it_is_used() -> None:
    with pytest.raises(ConfigError, match=r"A Rule is complete\. Give holds where it is made"):
        rules_of(Rule("5 at once"), holds=30)


def test_beside_a_rate_the_options_of_tokens_concern_the_rate() -> None:
    Rule("10/second; 3 at once", cost=2, deduct_when=lambda response: True, low=0.5)


def test_a_value_is_read_from_its_text() -> None:
    assert AtOnce.parse(" 5 at  once", name="export") == AtOnce(5, name="export")
    assert AtOnce.parse_many("5 at once; 3 at once") == (AtOnce(5), AtOnce(3))


@pytest.mark.parametrize("text", ["5/second", "5", "", None, 5])
def test_a_rate_is_not_read_as_a_value_at_once(text: Any) -> None:
    with pytest.raises(ConfigError, match='is not a number of requests at once: expected "5 at'):
        AtOnce.parse(text)
    with pytest.raises(ConfigError, match="is not a"):
        AtOnce.parse_many(text)


def test_the_scope_of_a_returned_number_is_read_back() -> None:
    assert read_numbers("view@callable@5-at-once", "at-once") == AtOnce(5)
