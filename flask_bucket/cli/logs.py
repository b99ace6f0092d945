"""Access logs: which client came when, from lines in the common or the combined format.

The line is read with a regular expression of our own. Of the parsers on PyPI, apachelogs 0.6.1 is
the only one that is well kept; it reads every field into objects, at 28,000 lines a second where
100,000 are needed and this reads 300,000. So the tests hold this expression against apachelogs.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

from ..clients import normal_address
from ..errors import ConfigError

By = Literal["address", "user"]

#: host ident user [day/month/year:hour:minute:second zone] "request" status bytes, and whatever
#: follows. A user may hold spaces; one that begins with "- " is another format's columns, such
#: as those of a log that begins with the virtual host.
_LINE = re.compile(
    rb"([^ \x00-\x1f]+) [^ ]+ (?!- [^[])(.+?) "
    rb"\[([0-3]\d/[A-Z][a-z][a-z]/\d{4}:[0-2]\d:[0-5]\d:[0-6]\d [+-]\d{4})\] "
    rb'"(?:[^"\\]++|\\.)*+" (?:\d{3}|-) (?:\d+|-)(?:\s.*)?',
    re.DOTALL,
)
_MONTHS = b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_EPOCH = date(1970, 1, 1).toordinal()

#: What a log says when a request has no user.
_NOBODY = (b"-", b'""')

_BLOCK = 1 << 20  # bytes read at once, and the longest line that is looked at
_HEAD = 1 << 13  # bytes in which a binary file shows: beyond, a zero byte is one damaged line
_GZIP = b"\x1f\x8b"


class UnreadableLogError(ConfigError):
    """A log that cannot be read, or is none: the message says which and why."""


@dataclass(slots=True)
class Traffic:
    """When each client came: eight bytes a request, and a name for each client.

    :param by: what a client is: an address, or the user that the log names.
    :param ipv6_prefix: leading bits of an IPv6 address that make a client.
    """

    by: By = "address"
    ipv6_prefix: int = 64
    #: Seconds since 1970 at which each client came; in order once :meth:`sort` was called.
    times: dict[str, array[int]] = field(default_factory=dict)
    #: Lines that are in neither format.
    malformed: int = 0
    #: Requests without a user, which a limit by user leaves out.
    nameless: int = 0

    @property
    def requests(self) -> int:
        return sum(map(len, self.times.values()))

    def sort(self) -> None:
        """Put each client's requests in order: logs are written when requests end."""
        for client, times in self.times.items():
            self.times[client] = array("q", sorted(times))

    def add(self, lines: Iterator[list[bytes]]) -> None:
        """Take in lines, a block at a time."""
        by_user = self.by == "user"
        line_of = _LINE.fullmatch
        known: dict[bytes, array[int]] = {}  # spares each line from spelling its client anew
        for block in lines:
            if len(known) > 100_000:
                known.clear()
            for line in block:
                match = line_of(line)
                if match is None:
                    self.malformed += 1
                    continue
                host, user, stamp = match.groups()
                second = seconds_of(stamp)
                if second is None:
                    self.malformed += 1
                    continue
                raw = user if by_user else host
                times = known.get(raw)
                if times is None:
                    if by_user and raw in _NOBODY:
                        self.nameless += 1
                        continue
                    times = known[raw] = self._times_of(raw)
                times.append(second)

    def _times_of(self, raw: bytes) -> array[int]:
        client = raw.decode(errors="backslashreplace")
        if self.by == "address":
            client = normal_address(client, self.ipv6_prefix) or client
        return self.times.setdefault(client, array("q"))


@lru_cache(maxsize=100_000)
def seconds_of(stamp: bytes) -> int | None:
    """Return the seconds since 1970 of ``17/May/2015:10:05:03 +0000``; None if it is no time."""
    day = _day_of(stamp[:11])
    hour, minute, second = int(stamp[12:14]), int(stamp[15:17]), int(stamp[18:20])
    if day is None or hour > 23 or second > 60:
        return None
    offset = int(stamp[22:24]) * 3600 + int(stamp[24:26]) * 60
    if stamp[21:22] == b"-":
        offset = -offset
    return day * 86_400 + hour * 3600 + minute * 60 + second - offset


@lru_cache(maxsize=10_000)
def _day_of(text: bytes) -> int | None:
    try:
        day = date(int(text[7:]), _MONTHS.index(text[3:6]) + 1, int(text[:2]))
    except ValueError:
        return None
    # From other years there are no logs, and no picture could be drawn.
    return day.toordinal() - _EPOCH if 1970 <= day.year < 3000 else None


def blocks(name: str, log: BinaryIO, advance: Callable[[int], object]) -> Iterator[list[bytes]]:
    """Yield a log's lines, without their ends, a block at a time; unpack gzip.

    :param name: what the log is called in error messages.
    :param advance: told how many bytes of the file were read.
    :raises UnreadableLogError: if it cannot be read, or is no text.
    """
    with _explained(name):
        text = _unpacked(log, advance)
        rest = block = text.read(_HEAD)
        if b"\0" in block:
            raise UnreadableLogError(f"{name} is not an access log: it is binary.")
        while block := text.read(_BLOCK):
            lines = (rest + block).split(b"\n")
            rest = lines.pop()
            if len(rest) > _BLOCK:
                rest = rest[:_BLOCK]  # no line of a log; but it counts as one
            yield lines
        yield rest.removesuffix(b"\n").split(b"\n") if rest else []


def _unpacked(log: BinaryIO, advance: Callable[[int], object]) -> Readable:
    """Return what the log reads as, whether it is packed or not: its first bytes tell."""
    raw: Any = log
    stream: io.BufferedReader = (
        raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(raw)
    )
    counted: Any = _Counted(stream, advance)
    return gzip.GzipFile(fileobj=counted) if stream.peek(2)[:2] == _GZIP else counted


class Readable(Protocol):
    """What can be read from."""

    def read(self, size: int, /) -> bytes: ...


class _Counted:
    """A stream that tells how much was read from it."""

    def __init__(self, stream: io.BufferedReader, advance: Callable[[int], object]) -> None:
        self._stream, self._advance = stream, advance

    def read(self, size: int, /) -> bytes:
        block = self._stream.read(size)
        self._advance(len(block))
        return block


@contextmanager
def _explained(name: str) -> Iterator[None]:
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UnreadableLogError(f"{name} is a damaged gzip file: {error}.") from None
    except OSError as error:
        raise UnreadableLogError(f"{name} cannot be read: {error.strerror or error}.") from None


def opened(name: str) -> BinaryIO:
    """Open a log by its path.

    :raises UnreadableLogError: if there is none, or it is a directory.
    """
    if Path(name).is_dir():
        raise UnreadableLogError(f"{name} is a directory; expected an access log.")
    with _explained(name):
        return Path(name).open("rb")
