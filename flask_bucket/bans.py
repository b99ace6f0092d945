"""Ban: after how many refusals a client is banned, and for how long."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from datetime import timedelta
from fractions import Fraction
from math import isfinite
from typing import Any

from . import grammar
from .at_once import AtOnce
from .errors import ConfigError
from .functions import checked_function
from .limits import EXACT, SECOND, TICKS, Limit, distinct_names

EXPECTED = 'Expected "<limit> for [<multiple>] <unit>", such as "20/hour for 1 day".'

_FOR = re.compile(r"\s+for\s+", re.IGNORECASE)

#: The longest ban, in seconds. The end of a longer one could not be written as a date.
LONGEST = 100 * 365 * 86_400


@dataclass(frozen=True, slots=True, init=False)
class Ban:
    """Refuses every request of a client for some time, because it went on after being refused.

    `after` is a bucket of refusals: each refused request takes one token. The refusal that takes
    the last one begins the ban.

    :param after: the limit on refusals, as a Limit or a text; or the text of the whole ban, such
        as ``"20/hour for 1 day"``, and no `lasts`.
    :param lasts: how long a ban lasts: a text such as ``"1 day"``, a timedelta, or a number of
        seconds.
    :param key_func: returns the client whose refusals are counted and who is banned; by default the
        rule's or the Limiter's key function. If it returns None, nothing is counted.
    :param name: identifies the ban's bucket; ``[a-z][a-z0-9_.-]*``.
    :raises ConfigError: for anything that is not what was expected, and for a ban that cannot be
        counted exactly.

    >>> Ban("20/hour", "1 day")
    Ban('20/hour for 1 day')
    """

    after: Limit
    #: In seconds.
    lasts: Fraction
    key_func: Callable[[], Any] | None
    #: In microseconds.
    microseconds: int = field(compare=False)

    def __init__(
        self,
        after: Limit | str,
        lasts: str | float | Fraction | timedelta | None = None,
        *,
        key_func: Callable[[], Any | Awaitable[Any]] | None = None,
        name: str = "ban",
    ) -> None:
        if isinstance(after, str):
            after, lasts = _divided(after, lasts)
        if not isinstance(after, Limit) or isinstance(after, AtOnce):
            raise _not_after(after)
        if key_func is not None:
            checked_function("key_func", key_func)
        seconds = _seconds(lasts)
        values = {
            "after": _owing(after.named(name), seconds),
            "lasts": seconds,
            "key_func": key_func,
            "microseconds": int(seconds * SECOND),
        }
        for attribute, value in values.items():
            object.__setattr__(self, attribute, value)

    @property
    def name(self) -> str:
        """The name that identifies the ban's bucket."""
        return self.after.name

    def named(self, name: str) -> Ban:
        """Return this ban under another name."""
        return Ban(self.after, self.lasts, key_func=self.key_func, name=name)

    def __str__(self) -> str:
        return f"{self.after} for {grammar.write_duration(self.lasts)}"

    def __repr__(self) -> str:
        own = "" if self.key_func is None else f", key_func={self.key_func!r}"
        own += "" if self.name == "ban" else f", name={self.name!r}"
        return f"Ban({str(self)!r}{own})"


def make_bans(source: Any) -> tuple[Ban, ...]:
    """Return bans, each with a name of its own: of a text for one or several, a Ban, or a list.

    None, an empty text and an empty list are no bans, as for limits of the application.

    :raises ConfigError: for anything else.
    """
    if source is None or source == "":
        return ()
    if isinstance(source, (str, Ban)):
        source = [source]
    if not isinstance(source, Iterable) or isinstance(source, (bytes, Mapping, Set)):
        raise ConfigError(f"{source!r} is not a ban, and not a list of bans. {EXPECTED}")
    bans = [ban for part in source for ban in _read(part)]
    names = [limit.name for limit in distinct_names(ban.after for ban in bans)]
    return tuple(
        b if b.name == name else b.named(name) for b, name in zip(bans, names, strict=True)
    )


def bans_set(key: str, value: Any, otherwise: tuple[Ban, ...]) -> tuple[Ban, ...]:
    """Return the bans that a configuration key asks for. It wins over the constructor if set."""
    if value is None:
        return otherwise
    try:
        return make_bans(value)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from None


def checked_ban(source: Any) -> Ban | None:
    """Return the ban of a rule.

    :raises ConfigError: for anything but one ban, or None.
    """
    if source is None:
        return None
    bans = make_bans(source)
    if not bans:
        raise ConfigError(f"{source!r} is no ban. Leave it out, or write None. {EXPECTED}")
    if len(bans) > 1:
        raise ConfigError(f"A rule has one ban, not {len(bans)}: given was {source!r}.")
    return bans[0]


def _read(part: object) -> tuple[Ban, ...]:
    if isinstance(part, Ban):
        return (part,)
    if not isinstance(part, str):
        raise ConfigError(f"{part!r} is not a ban. {EXPECTED}")
    return tuple(Ban(text) for text in re.split("[;,]", part))


def _divided(text: str, lasts: Any) -> tuple[Limit, Any]:
    """Return the limit that a text says, and how long the ban lasts: as it says, or as given."""
    limit, *times = _FOR.split(text.strip())
    if times and lasts is not None:
        raise ConfigError(
            f"{text!r:.200} already says how long the ban lasts, and {lasts!r:.200} was given as "
            "well. Leave one of them out."
        )
    if lasts is None:
        if len(times) != 1:
            raise ConfigError(f"{text!r:.200} is not a ban. {EXPECTED}")
        lasts = times[0]
    if len(re.split("[;,]", limit)) > 1:
        raise ConfigError(
            f"A ban comes after one limit, not after several: given was {text!r:.200}. Write a Ban "
            "for each of them, and give all of them to Limiter(bans=[...])."
        )
    if grammar.read_at_once(limit) is not None:
        raise _not_after(limit)
    return Limit.parse(limit), lasts


def _not_after(after: object) -> ConfigError:
    message = 'A ban comes after a limit on refusals, a rate such as "20/hour", and not after '
    if isinstance(after, (str, AtOnce)):
        return ConfigError(
            f"{message}{str(after)!r}. To count the refusals for want of a slot, give the ban to "
            f'that limit: limit("{after}", ban="20/hour for 1 day").'
        )
    return ConfigError(f"{message}{after!r:.200}.")


def checked_time(text: str) -> Fraction:
    """Return the seconds for which a text lets a ban last.

    :raises ConfigError: unless that can be a ban, with the reason alone.
    """
    seconds = grammar.read_duration(text)
    if seconds <= 0:
        raise ConfigError('no time at all. Expected one above 0, such as "1 hour".')
    if seconds > LONGEST:
        raise ConfigError("a ban lasts for at most 100 years.")
    return seconds


def _seconds(lasts: object) -> Fraction:
    """Return how long a ban lasts, in seconds: a whole number of microseconds."""
    given = lasts
    if isinstance(lasts, timedelta):
        lasts = Fraction(lasts // timedelta(microseconds=1), SECOND)
    if isinstance(lasts, str):
        try:
            lasts = checked_time(lasts)
        except ConfigError as error:
            raise ConfigError(f"{given!r:.200} is not how long a ban lasts: {error}") from None
    if isinstance(lasts, float) and isfinite(lasts):
        lasts = Fraction(str(lasts))  # the decimal that it prints as
    if isinstance(lasts, (int, Fraction)) and not isinstance(lasts, bool) and 0 < lasts <= LONGEST:
        seconds = Fraction(lasts)
        if (seconds * SECOND).denominator == 1:
            return seconds
    raise ConfigError(
        f"{given!r:.200} is not how long a ban lasts: expected a text such as '1 day', a timedelta "
        "or a number of seconds above 0, in whole microseconds, and at most 100 years."
    )


def _owing(after: Limit, seconds: Fraction) -> Limit:
    """Return the limit, counted in the finest ticks in which the debt of a ban is exact. They may
    be coarser than those that the capacity needs.
    """
    for tick in TICKS:
        counted = after.in_ticks_of(tick)
        ticks = seconds * SECOND / tick
        if ticks.denominator == 1 and counted.full + counted.step * (1 + ticks) < EXACT:
            return counted
    raise ConfigError(
        f"A ban after {after} that lasts {grammar.write_duration(seconds)} cannot be counted "
        "exactly in integers below 2**53. Let it last for a shorter time, or use rounder numbers."
    )
