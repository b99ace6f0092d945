"""The text of a limit, such as "5/second burst 20": how it is read, and how it is written."""

from __future__ import annotations

import re
from fractions import Fraction

from .errors import ConfigError

#: No limit needs a longer text, and a very long one could take long to read.
LONGEST_TEXT = 4_000

#: The seconds in each unit, largest first, under the word that names and texts use.
_UNITS = {
    "year": Fraction(365 * 86_400),
    "month": Fraction(30 * 86_400),
    "week": Fraction(7 * 86_400),
    "day": Fraction(86_400),
    "hour": Fraction(3_600),
    "minute": Fraction(60),
    "second": Fraction(1),
    "ms": Fraction(1, 1_000),
}
_ABBREVIATIONS = {"s": "second", "sec": "second", "m": "minute", "min": "minute"}
_ABBREVIATIONS |= {"h": "hour", "d": "day", "w": "week"}

#: 999 digits write out any float, so the text of every limit can be read back.
_TEXT = re.compile(
    r"(?P<amount>\d{1,999}(?:\.\d{1,999})?)\s*(?:/|\s+per\s)\s*"
    r"(?:(?P<multiple>\d{1,999}(?:\.\d{1,999})?)\s*)?(?P<unit>[a-z]+)"
    r"(?:\s+burst\s+(?P<burst>\d{1,30}))?",
    re.IGNORECASE | re.ASCII,
)
_DURATION = re.compile(
    r"(?:(?P<multiple>\d{1,999}(?:\.\d{1,999})?)\s*)?(?P<unit>[a-z]+)", re.IGNORECASE | re.ASCII
)
EXPECTED_DURATION = (
    'expected "[<multiple>] <unit>", such as "1 day" or "15 minutes"; units are '
    "ms, second, minute, hour, day, week, month and year"
)
_AT_ONCE = re.compile(r"(\d{1,30})\s+at\s+once", re.IGNORECASE | re.ASCII)
#: Words that people write for it.
_LIKE_AT_ONCE = re.compile(
    r"at[ _-]?once|at (?:a|the same) time|concurren|simultan|parallel|in[ -]?flight", re.IGNORECASE
)
_BAN = re.compile(r"(?P<limit>.+?) for (?P<time>.+)", re.IGNORECASE)
EXPECTED = (
    'expected "<amount>/<unit>" or "<amount> per [<multiple>] <unit>", optionally followed by '
    '"burst <capacity>", such as "5/second burst 20" or "100 per 15 minutes"; units are '
    'ms, second, minute, hour, day, week, month and year; a rule may also say "5 at once"; several '
    "limits are separated by ;"
)


def read_at_once(text: str) -> int | None:
    """Return the number of a text such as "5 at once"; None if it is another text."""
    match = _AT_ONCE.fullmatch(" ".join(text.split())) if len(text) <= LONGEST_TEXT else None
    return None if match is None else int(match[1])


def write_at_once(number: int) -> str:
    """Return the text that reads as this number of requests at once."""
    return f"{number} at once"


def read(text: str) -> tuple[int, Fraction, Fraction]:
    """Return the capacity, the tokens refilled in each period, and the period in seconds.

    :raises ConfigError: for anything that is not a limit, with the reason alone: the caller adds
        the text.
    """
    # Without runs of blanks, matching takes no longer than the text.
    match = _TEXT.fullmatch(" ".join(text.split())) if len(text) <= LONGEST_TEXT else None
    if match is None:
        raise ConfigError(_meant(text) or f"{EXPECTED}.")
    unit = _unit(match["unit"])
    if unit is None:
        raise ConfigError(f'unknown unit "{match["unit"]}"; {EXPECTED}.')
    amount = Fraction(match["amount"])
    if amount == 0 and match["burst"] is None:
        raise ConfigError("an amount of 0 would never allow anything. Expected an amount above 0.")
    if amount.denominator != 1 and match["burst"] is None:
        raise ConfigError(
            'without "burst" the amount is also the capacity, which is a whole number of at least '
            f'1. Add one, such as "{text.strip()} burst 1".'
        )
    period = Fraction(match["multiple"] or 1) * _UNITS[unit]
    return int(match["burst"] or amount), amount, period


def _meant(text: str) -> str | None:
    """Return what to write instead of a text that is not a rate, if that is clear."""
    if len(text) > LONGEST_TEXT:
        return None
    if read_at_once(text) is not None:
        return (
            "it limits requests at once, and a rate was expected. Write it in a rule, such as "
            '@limiter.limit("5 at once"), or as the value AtOnce(5).'
        )
    ban = _BAN.fullmatch(" ".join(text.split()))
    if ban is not None and (_TEXT.fullmatch(ban["limit"]) or read_at_once(ban["limit"])):
        return (
            f"it says how long a ban lasts, and a limit has none. Write the limit, and beside it a "
            f'ban for those who are refused too often: ban="20/hour for {ban["time"]}", or '
            "Limiter(bans=...) for the whole application."
        )
    if _LIKE_AT_ONCE.search(" ".join(text.split())):
        return (
            'a limit on requests at once is written as a number and two words, such as "5 at '
            'once", and stands in a rule. It has no burst. How long a slot is held is an option: '
            "holds=60."
        )
    return None


def read_duration(text: str) -> Fraction:
    """Return the seconds of a duration.

    :raises ConfigError: for anything that is not one, with the reason alone: the caller adds the
        text.
    """
    match = _DURATION.fullmatch(" ".join(text.split())) if len(text) <= LONGEST_TEXT else None
    if match is None:
        raise ConfigError(f"{EXPECTED_DURATION}.")
    unit = _unit(match["unit"])
    if unit is None:
        raise ConfigError(f'unknown unit "{match["unit"]}"; {EXPECTED_DURATION}.')
    return Fraction(match["multiple"] or 1) * _UNITS[unit]


def write_duration(seconds: Fraction) -> str:
    """Return the text that reads as these seconds, which have finite decimals: ``1 day``."""
    words = _period_words(seconds)
    return " ".join(("1", *words) if len(words) == 1 else words)


def write(capacity: int, amount: Fraction, period: Fraction) -> str:
    """Return the text that reads as these numbers. Amount and period have finite decimals."""
    words = _period_words(period)
    text = _decimal(amount)
    text += f"/{words[0]}" if len(words) == 1 else " per " + " ".join(words)
    return text if amount == capacity else f"{text} burst {capacity}"


def period_name(period: Fraction) -> str:
    """Return the name of a limit with this period: ``per-second``, ``per-15-minutes``."""
    return "per-" + "-".join(_period_words(period))


def _unit(word: str) -> str | None:
    word = word.lower()
    for candidate in (word, word.removesuffix("s")):
        if candidate in _UNITS or candidate in _ABBREVIATIONS:
            return _ABBREVIATIONS.get(candidate, candidate)
    return None


def _period_words(period: Fraction) -> tuple[str, ...]:
    """Return the period in the largest unit of which it is a whole number: ('15', 'minutes')."""
    unit = next((u for u, seconds in _UNITS.items() if (period / seconds).denominator == 1), "ms")
    multiple = period / _UNITS[unit]
    if multiple == 1:
        return (unit,)
    return (_decimal(multiple), unit if unit == "ms" else unit + "s")


def _decimal(number: Fraction) -> str:
    """Write a fraction whose denominator is made of twos and fives, in full and exactly."""
    places = 0
    while (number * 10**places).denominator != 1:
        places += 1
    digits = str(int(number * 10**places)).rjust(places + 1, "0")
    return f"{digits[:-places]}.{digits[-places:]}" if places else digits
