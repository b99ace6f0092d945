"""Bans as they are written: their text, their numbers, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flask_bucket.at_once import AtOnce
from flask_bucket.bans import Ban, bans_set, checked_ban, make_bans
from flask_bucket.bucket import take
from flask_bucket.decisions import Charge
from flask_bucket.errors import ConfigError
from flask_bucket.limits import EXACT, SECOND, Limit
from tests.conftest import START
from tests.property.worlds import limits

DAY = 86_400


@pytest.mark.parametrize(
    ("text", "after", "seconds"),
    [
        ("20/hour for 1 day", "20/hour", DAY),
        ("20/hour for day", "20/hour", DAY),
        ("  5 per 10 minutes   FOR  1.5 Hours ", "5 per 10 minutes", 5_400),
        ("1/second burst 3 for 90s", "1/second burst 3", 90),
        ("5/minute for 250 ms", "5/minute", Fraction(1, 4)),
    ],
)
def test_a_text_is_read_as_a_ban(text: str, after: str, seconds: int | Fraction) -> None:
    ban = Ban(text)
    assert (str(ban.after), ban.lasts) == (after, seconds)
    assert ban.microseconds == seconds * SECOND


@pytest.mark.parametrize("lasts", ["1 day", "24 hours", DAY, float(DAY), timedelta(days=1)])
def test_a_ban_lasts_as_long_as_a_text_a_number_or_a_timedelta_says(lasts: Any) -> None:
    assert Ban("20/hour", lasts) == Ban("20/hour for 1 day")


def test_a_float_is_read_as_the_decimal_that_it_prints_as() -> None:
    assert Ban("1/hour", 0.1).microseconds == 100_000


@pytest.mark.parametrize("text", ["20/hour for 1 day", "5 per 10 minutes burst 2 for 90 minutes"])
def test_a_ban_is_written_as_the_text_that_reads_as_it(text: str) -> None:
    assert str(Ban(text)) == text
    assert repr(Ban(text)) == f"Ban({text!r})"
    assert eval(repr(Ban(text)), {"Ban": Ban}) == Ban(text)


def test_a_ban_shows_the_name_that_it_was_given() -> None:
    assert repr(Ban("1/day", "1 week", name="spam")) == "Ban('1/day for 1 week', name='spam')"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "for",
        "20/hour",
        "20/hour for",
        "for 1 day",
        "20/hour for 1 day for 2 days",
        "20 for 1 h",
    ],
)
def test_anything_else_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(ConfigError, match=r"(?s)expected|Expected"):
        Ban(text)


@pytest.mark.parametrize(
    "lasts", [0, -1, None, True, "", "soon", "1 fortnight", "0 days", 1e-7, float("nan"), [], 2**60]
)
def test_a_ban_that_lasts_for_no_time_that_can_be_counted_is_refused(lasts: Any) -> None:
    with pytest.raises(ConfigError, match="not how long a ban lasts"):
        Ban(Limit("20/hour"), lasts)


@pytest.mark.parametrize("after", [20, None, ["20/hour"], AtOnce(5)])
def test_a_ban_comes_after_a_limit(after: Any) -> None:
    with pytest.raises(ConfigError, match="comes after a limit on refusals, a rate such as"):
        Ban(after, "1 day")


@pytest.mark.parametrize("after", ["5 at once", AtOnce(5)])
def test_a_ban_after_requests_at_once_is_told_where_to_stand(after: Any) -> None:
    with pytest.raises(ConfigError, match=r'not after \'5 at once\'.*limit\("5 at once", ban='):
        Ban(after, "1 day")
    with pytest.raises(ConfigError, match=r'limit\("5 at once", ban='):
        Ban("5 at once for 1 day")


def test_a_ban_is_told_once_how_long_it_lasts() -> None:
    with pytest.raises(ConfigError, match=r"already says how long .* '2 days' was given as well"):
        Ban("20/hour for 1 day", "2 days")


@pytest.mark.parametrize("lasts", ["1 day", DAY])
def test_a_ban_comes_after_one_limit_only(lasts: Any) -> None:
    with pytest.raises(ConfigError, match=r"after one limit, .* '20/hour; 5/minute'"):
        Ban("20/hour; 5/minute", lasts)
    with pytest.raises(ConfigError, match="after one limit"):
        Ban("20/hour; 5/minute for 1 day")


@pytest.mark.parametrize("lasts", ["101 years", "1000000 years", 101 * 365 * DAY, timedelta.max])
def test_no_ban_lasts_for_more_than_a_hundred_years(lasts: Any) -> None:
    assert Ban("20/hour", "100 years").lasts == 100 * 365 * DAY
    with pytest.raises(ConfigError, match="at most 100 years"):
        Ban("20/hour", lasts)


def test_a_key_function_that_cannot_be_called_is_refused_where_it_is_written() -> None:
    needs_more: Callable[..., Any] = lambda user: user  # noqa: E731
    with pytest.raises(ConfigError, match="key_func"):
        Ban("20/hour", "1 day", key_func=needs_more)


def test_the_debt_of_a_ban_decides_about_the_ticks_that_it_is_counted_in() -> None:
    limit = Limit("1000003/second burst 5")
    assert limit.tick == 1
    ban = Ban(limit, "1 year")
    assert ban.after == limit.named("ban")
    assert ban.after.tick == 1_000_000


def test_a_ban_that_no_tick_can_count_exactly_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be counted exactly"):
        Ban("99999937/second burst 5", "100 years")
    with pytest.raises(ConfigError, match="cannot be counted exactly"):
        Ban("1000003/second burst 5", Fraction(365 * DAY * SECOND + 1, SECOND))


@given(limit=limits(), microseconds=st.integers(1, 400 * DAY * SECOND))
def test_every_ban_that_is_accepted_lasts_exactly_as_long_as_it_says(
    limit: Limit, microseconds: int
) -> None:
    try:
        ban = Ban(limit, Fraction(microseconds, SECOND))
    except ConfigError:
        assume(False)
    charge = Charge(ban.after, "ban", kind="ban", lasts=ban.microseconds)
    one = Charge(Limit(1, ban.after.refill_rate, ban.after.per), "ban", 2, counts_for=("ban",))
    full = Charge(ban.after, "ban", ban.after.capacity - 1)
    _, states = take({}, [full], START)
    _, states = take(states, [one], START, held=[charge])
    assert not take(states, [charge], START + microseconds - 1)[0]
    assert take(states, [charge], START + microseconds)[0]
    assert ban.after.full - min(s.tokens for s in states.values()) < EXACT  # type: ignore[union-attr]


def test_bans_are_read_from_texts_bans_and_lists_of_them() -> None:
    day = Ban("20/hour for 1 day")
    assert make_bans("20/hour for 1 day") == make_bans(day) == make_bans([day]) == (day,)
    assert make_bans(None) == make_bans("") == make_bans(()) == ()


def test_bans_of_one_name_get_names_of_their_own() -> None:
    first, second, third = make_bans(["20/hour for 1 day; 100/day for 1 week", "1/s for 1 s"])
    assert [first.name, second.name, third.name] == ["ban", "ban-2", "ban-3"]
    assert str(second) == "100/day for 1 week"


@pytest.mark.parametrize("source", [5, b"20/hour for 1 day", {"20/hour for 1 day"}, [None], {}])
def test_what_is_no_ban_is_refused(source: Any) -> None:
    with pytest.raises(ConfigError, match="is not a ban"):
        make_bans(source)


def test_an_error_of_a_setting_names_its_key() -> None:
    with pytest.raises(ConfigError, match=r"^BUCKET_BANS: '20/hour' is not a ban"):
        bans_set("BUCKET_BANS", "20/hour", ())


def test_a_setting_wins_over_the_constructor() -> None:
    given = make_bans("20/hour for 1 day")
    assert bans_set("BUCKET_BANS", None, given) == given
    assert bans_set("BUCKET_BANS", (), given) == ()


def test_a_rule_has_one_ban_at_most() -> None:
    assert checked_ban(None) is None
    assert checked_ban("20/hour for 1 day") == Ban("20/hour for 1 day")
    nothing: Any
    for nothing in ("", [], ()):
        with pytest.raises(ConfigError, match=r"is no ban\. Leave it out, or write None"):
            checked_ban(nothing)
    with pytest.raises(ConfigError, match="one ban, not 2"):
        checked_ban("20/hour for 1 day; 100/day for 1 week")
