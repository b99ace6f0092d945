"""AtOnce: a limit on how many requests run at the same time."""

from __future__ import annotations

import re
from fractions import Fraction

from . import grammar
from .durations import Number, is_number
from .errors import ConfigError
from .limits import SECOND, Limit

NAME = "at-once"

#: Seconds after which a slot is free in any case, unless a rule gives another number.
HOLDS = 60

#: No request runs for longer than a day, and a worker that dies costs its slots for this long.
LONGEST = 86_400

#: The clock's resolution.
SHORTEST = Fraction(1, SECOND)


class AtOnce(Limit):
    """How many requests of a client may run at the same time.

    Each of them holds a slot, from the call that allows it until its response is made. If the
    body is streamed, that is until it is sent or closed.

    :param number: the slots, a whole number of at least 1.
    :param holds: seconds after which a slot is free in any case, even if the worker died; from a
        microsecond to a day. Set it to the server's own timeout for a request: a request that runs
        longer is no longer counted.
    :param name: identifies the slots in the store, as a :class:`Limit`'s name identifies its
        bucket; by default ``at-once``.
    :raises ConfigError: for numbers outside these ranges.

    It is a Limit with as many tokens as there are slots. They refill in `holds` seconds, because
    slots that nobody gives back are free by then.

    >>> AtOnce(5)
    AtOnce(5)
    >>> str(AtOnce(5, holds=30))
    '5 at once'
    """

    __slots__ = ()

    def __init__(self, number: int, *, holds: Number = HOLDS, name: str | None = None) -> None:
        if type(number) is not int or number < 1:
            raise ConfigError(
                f"A number of requests at once is a whole number of at least 1, not {number!r}. "
                'Expected one such as AtOnce(5), or "5 at once" in a rule.'
            )
        name = NAME if name is None else name
        per = checked_holds(holds)
        try:
            Limit.__init__(self, number, number, per, name)
        except ConfigError:
            Limit(1, 1, name=name)  # which tells what is wrong with a name
            raise ConfigError(
                f"AtOnce({number}, holds={holds!r}) cannot be counted exactly in integers below "
                "2**53. Take fewer slots, or a rounder time."
            ) from None

    @classmethod
    def parse(cls, text: str, *, name: str | None = None) -> AtOnce:
        """Read a text such as ``"5 at once"``.

        :raises ConfigError: for anything else.
        """
        number = grammar.read_at_once(text) if isinstance(text, str) else None
        if number is None:
            raise ConfigError(
                f'{text!r:.200} is not a number of requests at once: expected "5 at once", or '
                "another whole number."
            )
        return cls(number, name=name)

    @property
    def holds(self) -> Fraction:
        """Seconds after which a slot is free in any case, exactly."""
        return self.seconds_to_full

    @property
    def lasts(self) -> int:
        """The same in microseconds, at least 1."""
        return -(-self.holds * SECOND // 1)

    @property
    def is_named(self) -> bool:
        return self.name != NAME

    def scaled(self, share: Number) -> AtOnce:
        """Return this limit for one of several processes that share it: at least one slot."""
        return self._with(number=super().scaled(share).capacity)

    def named(self, name: str) -> AtOnce:
        return self._with(name=name)

    def held_for(self, holds: Number) -> AtOnce:
        """Return this limit with another time after which its slots are free."""
        return self._with(holds=holds)

    def _with(
        self, *, number: int | None = None, holds: Number | None = None, name: str | None = None
    ) -> AtOnce:
        return AtOnce(
            self.capacity if number is None else number,
            holds=self.holds if holds is None else holds,
            name=self.name if name is None else name,
        )

    def __str__(self) -> str:
        return grammar.write_at_once(self.capacity)

    def __repr__(self) -> str:
        holds = "" if self.holds == HOLDS else f", holds={float(self.holds):g}"
        return f"AtOnce({self.capacity}{holds}{f', name={self.name!r}' if self.is_named else ''})"

    def __reduce__(self) -> tuple[object, ...]:
        return _made, (self.capacity, self.holds, self.name)


def parse_many(text: str) -> tuple[Limit, ...]:
    """Read rates and limits on requests at once, separated by ``;`` or ``,``.

    :raises ConfigError: if any of them is not a limit, or there is none.

    >>> parse_many("10/second; 3 at once")
    (Limit('10/second'), AtOnce(3))
    """
    parts = re.split("[;,]", text) if len(text) <= grammar.LONGEST_TEXT else [text]
    numbers = [grammar.read_at_once(part) for part in parts]
    if all(number is None for number in numbers):
        return Limit.parse_many(text)
    try:
        return tuple(
            Limit.parse(part) if number is None else AtOnce(number)
            for part, number in zip(parts, numbers, strict=True)
        )
    except ConfigError as error:
        raise ConfigError(f"{error} The whole text is {text!r}.") from None


def checked_holds(holds: object) -> Number:
    """Return the seconds that a slot is held at most.

    :raises ConfigError: unless it is a number, from a microsecond to a day.
    """
    if not is_number(holds) or not SHORTEST <= holds <= LONGEST:
        raise ConfigError(
            f"holds is {holds!r:.200}; expected the seconds after which a slot is free in any "
            "case, from a microsecond (1e-6) to a day (86400), such as 60."
        )
    return holds


def _made(number: int, holds: Fraction, name: str) -> AtOnce:
    return AtOnce(number, holds=holds, name=name)
