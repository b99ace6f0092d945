"""Access logs: opens and unpacks files, finds their format, and reads their lines."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from ..errors import ConfigError
from .formats import Entry, Format, Reader, formats
from .layout import printable
from .output import counted
from .prefixes import after_prefix

_BLOCK = 1 << 20  # bytes read at once, and the longest line
_HEAD = 1 << 13  # a zero byte in these first bytes means a binary file; later, a damaged line
_GZIP = b"\x1f\x8b"

#: Lines of the extended format, which names its columns, and of journalctl, which notes boots.
_COMMENTS = (b"#", b"-- ")
#: Parts of the lines that journalctl writes if it writes an entry in several lines.
_JOURNAL_FIELDS = (b"__REALTIME_TIMESTAMP", b"_BOOT_ID=")

#: Lines that are tried in every format.
_SAMPLE = 1000
#: Characters that are shown of a malformed line.
_SHOWN = 100


class UnreadableLogError(ConfigError):
    """A file that cannot be read, or is not an access log. The message says which, and why."""


@dataclass(slots=True)
class Log:
    """One log, and the count of its lines.

    :param name: how error messages name it.
    :param format: the name of its format. By default, the first lines tell it.
    """

    name: str
    format: str | None = None
    requests: int = 0
    #: Lines that are not requests in the log's format.
    malformed: int = 0
    #: The number and the text of the first of them.
    first: tuple[int, bytes] | None = None

    def entries(self, lines: Iterator[list[bytes]]) -> Iterator[Entry]:
        """Yield the requests in blocks of lines, and count the lines.

        :raises UnreadableLogError: if most lines are malformed.
        """
        first = next(filter(None, lines), None)
        if first is None:
            return
        form, read = self._reader(first)
        for number, line in enumerate(chain(first, chain.from_iterable(lines)), 1):
            entry = read(line)
            if entry is not None and entry.at is not None:
                self.requests += 1
                yield entry
            elif line.strip() and not line.startswith(_COMMENTS):
                self.malformed += 1
                self.first = self.first or (number, line)
        if self.malformed > self.requests:
            raise UnreadableLogError(self._mostly_malformed(form))

    def first_malformed(self) -> str:
        """Show the first malformed line and its number."""
        assert self.first is not None
        number, line = self.first
        text = printable(line[: 4 * _SHOWN].decode(errors="backslashreplace"))
        text = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
        return f"line {number:,} of {self.name}: {text!r}"

    def _reader(self, block: Sequence[bytes]) -> tuple[Format, Reader]:
        """Return the format that reads the most of the first lines, with or without prefixes."""
        known = formats()
        tried = known.values() if self.format is None else (known[self.format],)
        sample = block[:_SAMPLE]
        best, most = None, 0
        for form in tried:
            for read in (form.read, after_prefix(form.read)):
                count = sum(_is_request(read(line)) for line in sample)
                if count > most:
                    best, most = (form, read), count
        if best is not None:
            return best
        if self.format is not None:
            return known[self.format], after_prefix(known[self.format].read)
        raise UnreadableLogError(_why_unknown(self.name, sample))

    def _mostly_malformed(self, form: Format) -> str:
        lines = self.malformed + self.requests
        hint = "Remove other lines first, for example with grep." if self.requests else ""
        if self.format is not None:
            hint = "Leave out --format to detect the format."
        return (
            f"{self.name} is mostly malformed: {self.malformed:,} of {counted(lines, 'line')} "
            f"are not requests in {form.title}. The first is {self.first_malformed()}. {hint}"
        )


def _is_request(entry: Entry | None) -> bool:
    return entry is not None and entry.at is not None


def _why_unknown(name: str, lines: Sequence[bytes]) -> str:
    """Explain why a log cannot be read whose first lines are in no known format."""
    first = next(((n, line) for n, line in enumerate(lines, 1) if line.strip()), None)
    if first is None:
        return f"No request in {name}: its lines are blank."
    log = Log(name, first=first)
    if any(after_prefix(formats()["uvicorn"].read)(line) for line in lines):
        return (
            f"{name} has no times, as usual for uvicorn: {log.first_malformed()}. Add them as a "
            "prefix, for example with docker compose logs -t or journalctl -o short-iso."
        )
    if any(field in line for line in lines for field in _JOURNAL_FIELDS):
        return (
            f"{name} is a journal with several lines for each entry: {log.first_malformed()}. "
            "Expected one line for each, as journalctl -o short-iso or -o json writes it."
        )
    names = ", ".join(formats())
    return (
        f"{name} is in no known format ({names}): {log.first_malformed()}. If the log begins with "
        "other lines, name its format with --format."
    )


def blocks(name: str, log: BinaryIO, advance: Callable[[int], object]) -> Iterator[list[bytes]]:
    """Yield the lines of a log in blocks, without line ends. Gzip is unpacked.

    :param name: the name of the log in error messages.
    :param advance: called with the number of bytes read.
    :raises UnreadableLogError: if the log cannot be read, or is binary.
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
                rest = rest[:_BLOCK]  # too long for a request; it counts as one malformed line
            yield lines
        yield rest.removesuffix(b"\n").split(b"\n") if rest else []


def _unpacked(log: BinaryIO, advance: Callable[[int], object]) -> Readable:
    """Return a stream of the log's text. The first bytes tell whether it is packed."""
    raw: Any = log
    stream: io.BufferedReader = (
        raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(raw)
    )
    counted: Any = _Counted(stream, advance)
    return gzip.GzipFile(fileobj=counted) if stream.peek(2)[:2] == _GZIP else counted


class Readable(Protocol):
    """A stream to read from."""

    def read(self, size: int, /) -> bytes: ...


class _Counted:
    """A stream that reports the bytes read."""

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

    :raises UnreadableLogError: if it cannot be opened, or is a directory.
    """
    if Path(name).is_dir():
        raise UnreadableLogError(f"{name} is a directory; expected an access log.")
    with _explained(name):
        return Path(name).open("rb")
