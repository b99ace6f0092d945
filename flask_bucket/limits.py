"""Limit: a capacity and a refill rate, in exact numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from typing import overload

from . import grammar
from .durations import Number
from .errors import ConfigError

#: Lua's numbers are doubles. Integers are exact below this bound, and not above it.
EXACT = 2**53

#: The possible lengths of a tick, in microseconds. A limit uses the finest one that stays exact.
TICKS = (1, 1_000, 1_000_000)

SECOND = 1_000_000  # microseconds

#: No limit needs larger numbers, and counting with them would take long.
LARGEST_EXPONENT = 400
LARGEST_BITS = 3_000

NAME = re.compile(r"[a-z][a-z0-9_.-]*")


@dataclass(frozen=True, slots=True, init=False)
class Limit:
    """How much a client may do: a bucket of `capacity` tokens, refilled continuously.

    :param capacity: tokens in a full bucket, a whole number of at least 1: the largest burst.
    :param refill_rate: tokens gained every `per` seconds, above 0. An ``int``, ``float``
        (read as its decimal text: 0.1 is exactly 1/10), ``Decimal`` or ``Fraction``.
    :param per: the period in seconds, above 0.
    :param name: identifies the limit's buckets in the store, so that its numbers may change
        while its clients keep their balances; ``[a-z][a-z0-9_.-]*``. By default the period
        in words: ``per-second``, ``per-15-minutes``.
    :raises ConfigError: for numbers outside these ranges, and for a limit that no length of
        tick can count exactly.

    Instead of the numbers, a limit's text may be given, as to :meth:`parse`.

    >>> Limit(capacity=20, refill_rate=5)
    Limit('5/second burst 20')
    >>> Limit("100 per 15 minutes").name
    'per-15-minutes'

    The remaining attributes are the same limit in the integers that both the reference bucket
    and the script count in: one token is `scale` parts, and each tick of `tick` microseconds
    adds `step` parts.
    """

    capacity: int
    refill_rate: Fraction
    per: Fraction
    name: str
    tick: int = field(init=False, repr=False, compare=False)
    scale: int = field(init=False, repr=False, compare=False)
    step: int = field(init=False, repr=False, compare=False)
    #: The parts in a full bucket.
    full: int = field(init=False, repr=False, compare=False)

    @overload
    def __init__(self, capacity: str, *, name: str | None = None) -> None: ...

    @overload
    def __init__(
        self, capacity: Number, refill_rate: Number, per: Number = 1, name: str | None = None
    ) -> None: ...

    def __init__(
        self,
        capacity: Number | str,
        refill_rate: Number | None = None,
        per: Number = 1,
        name: str | None = None,
    ) -> None:
        if isinstance(capacity, str) and refill_rate is None and per == 1:
            written = Limit.parse(capacity, name=name)
            capacity, refill_rate, per = written.capacity, written.refill_rate, written.per
        whole = _exact("capacity", capacity)
        if whole.denominator != 1 or whole < 1:
            raise ConfigError(
                "A limit's capacity is a whole number of tokens of at least 1, not "
                f"{_shown(capacity)}. To allow less than one request per period, lower the refill "
                "rate: Limit(capacity=1, refill_rate=0.5) is one request every two seconds."
            )
        rate, period = _writable(_positive("refill_rate", refill_rate), _positive("per", per))
        if name is None:
            name = grammar.period_name(period)
        elif not isinstance(name, str) or not NAME.fullmatch(name):
            raise ConfigError(
                f"A limit's name is lower-case letters, digits, '_', '.' and '-', starting with "
                f"a letter, not {name!r}. It is part of the key in Redis."
            )
        tick, scale, step = _integers(int(whole), rate, period)
        values = {
            "capacity": int(whole),
            "refill_rate": rate,
            "per": period,
            "name": name,
            "tick": tick,
            "scale": scale,
            "step": step,
            "full": int(whole) * scale,
        }
        for attribute, value in values.items():
            object.__setattr__(self, attribute, value)

    @classmethod
    def parse(cls, text: str, *, name: str | None = None) -> Limit:
        """Read one limit: ``<amount> (/ | per) [<multiple>] <unit> [burst <capacity>]``.

        Units are ms, s/sec/second, m/min/minute, h/hour, d/day, w/week, month (30 days) and
        year (365 days), singular or plural, in any case. Without ``burst`` the capacity is
        the amount.

        :raises ConfigError: for anything else, with the text and what was expected.

        >>> Limit.parse("5/second burst 20").capacity
        20
        """
        if not isinstance(text, str):
            raise ConfigError(f"{_shown(text)} is not a limit's text: {grammar.EXPECTED}.")
        try:
            capacity, amount, period = grammar.read(text)
            return cls(capacity, amount, period, name)
        except ConfigError as error:
            raise ConfigError(f"{_quoted(text)} is not a limit: {error}") from None

    @classmethod
    def parse_many(cls, text: str) -> tuple[Limit, ...]:
        """Read limits separated by ``;`` or ``,``.

        :raises ConfigError: if any of them is not a limit, or there is none.

        >>> Limit.parse_many("10/s; 1000/hour burst 2000")
        (Limit('10/second'), Limit('1000/hour burst 2000'))
        """
        if not isinstance(text, str):
            raise ConfigError(f"{_shown(text)} is not a limit's text: {grammar.EXPECTED}.")
        try:
            return tuple(cls.parse(part) for part in re.split("[;,]", text))
        except ConfigError as error:
            whole = f" The whole text is {_shown(text)}." if re.search("[;,]", text) else ""
            raise ConfigError(f"{error}{whole}") from None

    @property
    def is_named(self) -> bool:
        """Whether the limit has a name of its own, and not that of its period."""
        return self.name != grammar.period_name(self.per)

    @property
    def rate(self) -> Fraction:
        """Tokens gained each second, exactly."""
        return self.refill_rate / self.per

    @property
    def seconds_to_full(self) -> Fraction:
        """Seconds in which an empty bucket fills, exactly."""
        return self.capacity / self.rate

    def scaled(self, share: Number) -> Limit:
        """Return this limit for one of several that share it: capacity and rate times `share`.

        The capacity is rounded down, but stays at least 1: otherwise nothing would be allowed.
        """
        part = _positive("share", share)
        capacity = max(1, int(self.capacity * part))
        return Limit(capacity, self.refill_rate * part, self.per, self.name)

    def named(self, name: str) -> Limit:
        """Return this limit under another name."""
        return Limit(self.capacity, self.refill_rate, self.per, name)

    def in_ticks_of(self, tick: int) -> Limit:
        """Return this limit, counted in longer ticks of so many microseconds."""
        counted, parts = copy(self), self.rate * Fraction(tick, SECOND)
        values = {"tick": tick, "scale": parts.denominator, "step": parts.numerator}
        for attribute, value in (values | {"full": self.capacity * parts.denominator}).items():
            object.__setattr__(counted, attribute, value)
        return counted

    def __str__(self) -> str:
        return grammar.write(self.capacity, self.refill_rate, self.per)

    def __repr__(self) -> str:
        return f"Limit({str(self)!r}{f', name={self.name!r}' if self.is_named else ''})"


def _exact(what: str, value: object) -> Fraction:
    """Read a number exactly; a float as the decimal text it prints as."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, Fraction)):
        raise ConfigError(
            f"A limit's {what} is a number (int, float, Decimal or Fraction), not {_shown(value)}."
        )
    given = value
    if isinstance(value, float):
        finite, value = isfinite(value), Decimal(float.__repr__(value))
    elif isinstance(value, Decimal):
        finite = value.is_finite()
    else:
        finite = True
    if not finite:
        raise ConfigError(f"A limit's {what} is a finite number, not {given!r}.")
    # Checked before a Decimal is written out: its exponent may mean millions of digits.
    if isinstance(value, Decimal) and abs(value.adjusted()) > LARGEST_EXPONENT:
        raise ConfigError(f"A limit's {what} is too large or too close to 0: {value}.")
    number = Fraction(value)
    if max(number.numerator.bit_length(), number.denominator.bit_length()) > LARGEST_BITS:
        raise ConfigError(f"A limit's {what} has more than some 900 digits. Use a rounder number.")
    return number


def _quoted(text: str) -> str:
    return f'"{text}"' if len(text) <= 200 else _shown(text)


def _shown(value: object) -> str:
    """Return a value as a message shows it, however long it is."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"


def _positive(what: str, value: object) -> Fraction:
    number = _exact(what, value)
    if number <= 0:
        raise ConfigError(f"A limit's {what} is above 0, not {_shown(value)}.")
    return number


def _writable(rate: Fraction, per: Fraction) -> tuple[Fraction, Fraction]:
    """Return the same ratio in numbers with finite decimals, so that any limit can be written.

    A third of a token a second becomes 1 token per 3 seconds.
    """
    for number in (rate, per):
        rest = number.denominator
        for prime in (2, 5):
            while rest % prime == 0:
                rest //= prime
        rate, per = rate * rest, per * rest
    return rate, per


def _integers(capacity: int, rate: Fraction, per: Fraction) -> tuple[int, int, int]:
    """Return (tick, scale, step) for the finest tick in which everything stays exact."""
    for tick in TICKS:
        parts_per_tick = rate / per * Fraction(tick, SECOND)
        scale, step = parts_per_tick.denominator, parts_per_tick.numerator
        if capacity * scale + step < EXACT:
            return tick, scale, step
    raise ConfigError(
        f"A limit of capacity {capacity} refilled by {rate} every {per} s cannot be counted "
        "exactly in integers below 2**53. Use rounder numbers or a smaller capacity."
    )


def distinct_names(limits: Iterable[Limit], taken: set[str] | None = None) -> tuple[Limit, ...]:
    """Rename limits that would share a bucket: the second ``per-second`` is ``per-second-2``."""
    taken = set() if taken is None else taken
    named = [(limit, distinct_name(limit.name, taken)) for limit in limits]
    return tuple(limit if name == limit.name else limit.named(name) for limit, name in named)


def distinct_name(name: str, taken: set[str]) -> str:
    """Return a name, with a number if it is taken. The returned name is taken from then on."""
    distinct, n = name, 1
    while distinct in taken:
        n += 1
        distinct = f"{name}-{n}"
    taken.add(distinct)
    return distinct
