"""The example's own environment variables, in addition to those that Flask reads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from flask_bucket import ConfigError, Limit


@dataclass(frozen=True, slots=True)
class Settings:
    """The example's own settings, checked."""

    #: The limit of /test, from EXAMPLE_CAPACITY (tokens) and EXAMPLE_REFILL_RATE (per second).
    test_limit: Limit
    #: How many reverse proxies are in front of the app, from EXAMPLE_TRUSTED_PROXIES. Each of them
    #: appends the address of its caller to X-Forwarded-For. The client may have forged any
    #: further entries.
    trusted_proxies: int

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read the settings. A variable that is absent or empty keeps its default.

        :raises ConfigError: for an invalid value, with the name of the variable.
        """
        capacity = environment.get("EXAMPLE_CAPACITY") or "10"
        refill_rate = environment.get("EXAMPLE_REFILL_RATE") or "2"
        try:
            test_limit = Limit(_number(capacity), _number(refill_rate))
        except ConfigError as error:
            raise ConfigError(
                f"EXAMPLE_CAPACITY={capacity}, EXAMPLE_REFILL_RATE={refill_rate}: {error}"
            ) from None
        return cls(test_limit, _proxies(environment.get("EXAMPLE_TRUSTED_PROXIES") or "0"))


def _number(text: str) -> Fraction:
    """Read a number exactly: 2, 0.5, 1e-3 or 5/3600."""
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ConfigError(f"{text!r} is not a number such as 2, 0.5 or 5/3600.") from None


def _proxies(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ConfigError(
            f"EXAMPLE_TRUSTED_PROXIES={text}: expected the number of reverse proxies in front of "
            "the app, a whole number such as 1. Leave it unset or set it to 0 for none."
        )
    return int(text)
