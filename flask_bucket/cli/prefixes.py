"""Prefixes of a server's line: by containers, syslog, journald, Python's logging."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from . import stamps
from .formats import Entry, Reader

_COLOUR = rb"(?:\x1b\[[\d;]*m)*"
_ISO = rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_SYSLOG = rb"[A-Z][a-z][a-z] [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?"
#: The end of ``journalctl -o short-full``: a zone is a name or an offset.
_FULL = rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? (?:[A-Z]{2,5}|[+-]\d\d(?:\d\d)?)"
#: ``web1 gunicorn[812]: ``, or without a host: ``nginx: ``, ``app[web.1]: `` (Heroku).
_TAG = rb"(?:[\w.-]+ [\w./@-]+(?:\[\d+\])?|[a-z][\w.-]*(?:\[[\w.-]+\])?): "

#: Each part may be absent, so this matches every line. From left to right:
#: ``web-1  | `` (docker compose) or ``[pod/web-5d/web] `` (kubectl), perhaps in colours;
#: ``<134>1 2024-05-17T10:05:03Z host app 12 - - `` (syslog, RFC 5424), or a time, followed by
#: ``stdout F `` (a container runtime), ``host tag[12]: `` (syslog, journald) or nothing (docker);
#: a time of journalctl's other forms, followed by ``host tag[12]: ``;
#: ``INFO:werkzeug:`` (Python's logging).
_PREFIX = re.compile(
    _COLOUR + rb"(?:(?:[\w.@-]+ *\| |\[pod/[^\]]+\] )" + _COLOUR + rb")?"
    rb"(?:<\d{1,3}>1 (?P<sent>" + _ISO + rb") [^ ]+ [^ ]+ [^ ]+ [^ ]+ (?:-|\[[^\]]*\]) |"
    rb"(?:<\d{1,3}>)?(?:(?P<iso>" + _ISO + rb")|(?P<syslog>" + _SYSLOG + rb")) "
    rb"(?:std(?:out|err) [FP] |" + _TAG + rb")?|"
    rb"(?:[A-Z][a-z][a-z] (?P<full>" + _FULL + rb")|(?P<unix>\d{9,10}\.\d{6})|\[ *\d+\.\d{6}\]) "
    rb"" + _TAG + rb")?"
    rb"(?:(?:DEBUG|INFO|WARNING|ERROR):[\w.]+:)?"
)

#: How the time of a prefix is read, by its group. That of ``-o short-monotonic`` is none.
_TIMES: tuple[tuple[str, Callable[[bytes], int | None]], ...] = (
    ("iso", stamps.iso),
    ("sent", stamps.iso),
    ("syslog", stamps.syslog),
    ("full", stamps.with_zone),
    ("unix", lambda stamp: stamps.of_any(stamp.decode())),
)

#: The names of a line and its time, where lines are kept in JSON: by Docker in
#: ``{"log":"...\n","stream":"stdout","time":"..."}``, and by ``journalctl -o json``.
_WRAPPED = (("log", "time"), ("MESSAGE", "__REALTIME_TIMESTAMP"))


def after_prefix(read: Reader) -> Reader:
    """Return a reader of lines with a prefix. A line without a time of its own has the prefix's."""

    def read_after_prefix(line: bytes) -> Entry | None:
        line, at = _unwrapped(line)
        match = _PREFIX.match(line)
        assert match is not None  # it may be empty
        entry = read(line[match.end() :])
        if entry is None or entry.at is not None:
            return entry
        return entry._replace(at=_time(match) if at is None else at)

    return read_after_prefix


def _time(match: re.Match[bytes]) -> int | None:
    return next((read(match[name]) for name, read in _TIMES if match[name] is not None), None)


def _unwrapped(line: bytes) -> tuple[bytes, int | None]:
    """Return a line, and its time, out of the JSON that keeps it. Any other is left as it is."""
    if line.startswith((b"\x1e{", b"data: {")):  # -o json-seq and json-sse
        line = line[line.index(b"{") :]
    if not line.startswith(b"{"):
        return line, None
    try:
        data = json.loads(line)
        for name, time in _WRAPPED:
            if name in data:
                return _text(data[name]).rstrip(b"\n"), stamps.of_any(data.get(time))
    except (ValueError, TypeError, RecursionError):
        return b"", None
    return line, None


def _text(message: object) -> bytes:
    """Return a message. Journald writes one that is not plain text as a list of bytes."""
    return bytes(message) if isinstance(message, list) else str(message).encode()
