"""Times in logs, as microseconds since 1970. A time without a zone is taken for UTC."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any

from ..limits import SECOND

_MONTHS = b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
#: There are no logs from other years, and no picture could be drawn of them.
_YEARS = range(1970, 3000)
_LATEST = (date(_YEARS.stop, 1, 1).toordinal() - _EPOCH_DAY) * 86_400 * SECOND


@lru_cache(maxsize=100_000)
def clf(stamp: bytes) -> int | None:
    """Read ``17/May/2015:10:05:03 +0000``, which the regular expressions have found well formed.

    None stands for a time that does not exist.
    """
    at = clf_without_zone(stamp[:20])
    if at is None:
        return None
    offset = int(stamp[22:24]) * 3600 + int(stamp[24:26]) * 60
    return at + (offset if stamp[21:22] == b"-" else -offset) * SECOND


def clf_without_zone(stamp: bytes) -> int | None:
    """Read ``17/May/2015:10:05:03.655`` or ``17/May/2015 10:05:03``, found well formed as above."""
    day = _day(stamp[:11])
    hour, minute, second = int(stamp[12:14]), int(stamp[15:17]), int(stamp[18:20])
    if day is None or hour > 23 or second > 60:  # 60 is a leap second
        return None
    fraction = int(stamp[21:27].ljust(6, b"0"))
    return (day * 86_400 + hour * 3600 + minute * 60 + second) * SECOND + fraction


@lru_cache(maxsize=10_000)
def _day(text: bytes) -> int | None:
    try:
        day = date(int(text[7:]), _MONTHS.index(text[3:6]) + 1, int(text[:2]))
    except ValueError:
        return None
    return day.toordinal() - _EPOCH_DAY if day.year in _YEARS else None


def iso(stamp: bytes) -> int | None:
    """Read an ISO 8601 time such as ``2015-05-17T10:05:03.186641Z``."""
    try:
        moment = datetime.fromisoformat(stamp.replace(b",", b".").decode())
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND if moment.year in _YEARS else None


def with_zone(stamp: bytes) -> int | None:
    """Read ``2024-05-17 10:05:03 +02``. The name of a zone tells no offset: it is taken for UTC."""
    moment, _, zone = stamp.rpartition(b" ")
    return iso(moment + zone if zone[:1] in b"+-" else moment)


@lru_cache(maxsize=100_000)
def syslog(stamp: bytes, now: datetime | None = None) -> int | None:
    """Read ``May 17 10:05:03``, which has no year: that of the last such day is taken.

    :param now: the time at which the log is read. A clock that is ahead by a day is forgiven.
    """
    latest = (now or datetime.now(UTC)) + timedelta(days=1)
    for year in range(latest.year, latest.year - 9, -1):  # 29 February comes every 8 years at worst
        day = b" ".join((stamp[4:6].strip().rjust(2, b"0"), stamp[:3], b"%d" % year))
        at = clf_without_zone(day.replace(b" ", b"/") + b" " + stamp[7:])
        if at is not None and at <= (latest - _EPOCH) // _MICROSECOND:
            return at
    return None


def of_any(value: Any) -> int | None:
    """Read a time in JSON: a text in one of the formats above, or a number since 1970.

    Loggers write a number in seconds, milliseconds, microseconds or nanoseconds: its size tells.
    """
    if isinstance(value, str):
        return _of_text(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    for unit in (SECOND, 1000, 1):
        if 0 <= value * unit < _LATEST:
            return round(value * unit)
    return round(value / 1000) if 0 <= value / 1000 < _LATEST else None


def _of_text(text: str) -> int | None:
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        return of_any(number)
    raw = text.encode(errors="replace")
    try:
        return clf(raw) if raw[2:3] == b"/" else iso(raw.replace(b"/", b"-"))
    except ValueError:
        return None
