"""Sources: how the limits of a rule are written, and how they are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from .at_once import AtOnce, parse_many
from .durations import Number
from .errors import ConfigError
from .limits import Limit

#: The limits of a rule as they are written. A callable returns any of the others, or None, ""
#: or []: no limit now.
LimitSource = str | Limit | Sequence[str | Limit]
RuleSource = LimitSource | Callable[[], Any]

_parse_many = lru_cache(maxsize=1000)(parse_many)


def limits_returned(
    returned: Any, burst: int | None, name: str | None, holds: Number | None
) -> tuple[Limit, ...]:
    """Read what a limit function returned. None, "" and [] are no limit now."""
    if returned is None or (isinstance(returned, (str, list, tuple)) and not returned):
        return ()
    return limits_of(returned, burst, name, holds)


def limits_of(
    source: object, burst: int | None, name: str | None, holds: Number | None
) -> tuple[Limit, ...]:
    """Read the limits of a rule.

    :param burst: the capacity of a rate that has no burst yet.
    :param name: the name of all of them.
    :param holds: the seconds after which slots are free, of limits on requests at once.
    :raises ConfigError: for anything else.
    """
    limits = _flattened(source)
    if not limits:
        raise ConfigError(
            f"{source!r} holds no limit. Expected a text such as '5/second burst 20', a Limit, "
            "a list of these, or a function that returns one of them."
        )
    if burst is not None:
        at_once = any(isinstance(limit, AtOnce) for limit in limits)
        if at_once or len(limits) != 1 or limits[0].capacity != limits[0].refill_rate:
            raise ConfigError(
                f"burst={burst!r} goes with one rate that has no burst yet, not with {source!r}. "
                "Write each burst into its text, such as '5/second burst 20; 100/minute'."
            )
        limits = (Limit(burst, limits[0].refill_rate, limits[0].per, limits[0].name),)
    if holds is not None:
        limits = tuple(x.held_for(holds) if isinstance(x, AtOnce) else x for x in limits)
    return limits if name is None else tuple(limit.named(name) for limit in limits)


def _flattened(source: object) -> tuple[Limit, ...]:
    if isinstance(source, Limit):
        return (source,)
    if isinstance(source, str):
        return _parse_many(source)
    if isinstance(source, Sequence) and not isinstance(source, (bytes, bytearray)):
        return tuple(limit for part in source for limit in _flattened(part))
    raise ConfigError(
        f"{source!r} is not a limit. Expected a text such as '5/second burst 20', a Limit, "
        "a list of these, or a function that returns one of them or None."
    )
