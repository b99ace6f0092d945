"""Durations in seconds, as settings and rules give them."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import TypeGuard

from .errors import ConfigError

Number = int | float | Decimal | Fraction

#: Seconds for which tokens may be taken ahead, at most.
LONGEST_LEASE = 10


def is_number(value: object) -> TypeGuard[Number]:
    """Return whether a value is a number that can be compared.

    ``True`` and ``False`` are not, although they are ints, and ``Decimal("NaN")`` is not either.
    """
    if isinstance(value, Decimal):
        return value.is_finite()
    return isinstance(value, (int, float, Fraction)) and not isinstance(value, bool)


def checked_lease(what: str, value: object) -> float:
    """Return the seconds of a lease.

    :raises ConfigError: unless it is a number from 0 to 10.
    """
    if not is_number(value) or not 0 <= value <= LONGEST_LEASE:
        raise ConfigError(
            f"{what} is {value!r}; expected a number of seconds from 0 (no lease) to "
            f"{LONGEST_LEASE}, such as 0.1."
        )
    return float(value)
