"""What others write before a server's line: containers, syslog, journald, Python's logging."""

from __future__ import annotations

import json
import re

from . import stamps
from .formats import Entry, Reader

_COLOUR = rb"(?:\x1b\[[\d;]*m)*"
_ISO = rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_SYSLOG_TIME = rb"[A-Z][a-z][a-z] [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?"

#: Each part may be absent, so this matches every line. From left to right:
#: ``web-1  | `` (docker compose) or ``[pod/web-5d/web] `` (kubectl), perhaps in colours;
#: ``<134>1 2024-05-17T10:05:03Z host app 12 - - `` (syslog, RFC 5424), or a time, followed by
#: ``stdout F `` (a container runtime), ``host tag[12]: `` (syslog, journald) or nothing (docker);
#: ``INFO:werkzeug:`` (Python's logging).
_PREFIX = re.compile(
    _COLOUR + rb"(?:(?:[\w.-]+ *\| |\[pod/[^\]]+\] )" + _COLOUR + rb")?"
    rb"(?:<\d{1,3}>1 (?P<sent>" + _ISO + rb") [^ ]+ [^ ]+ [^ ]+ [^ ]+ (?:-|\[[^\]]*\]) |"
    rb"(?:<\d{1,3}>)?(?:(?P<time>" + _ISO + rb")|" + _SYSLOG_TIME + rb") "
    rb"(?:std(?:out|err) [FP] |[\w.-]+ [\w./@-]+(?:\[\d+\])?: )?)?"
    rb"(?:(?:DEBUG|INFO|WARNING|ERROR):[\w.]+:)?"
)

#: How Docker keeps a container's lines: ``{"log":"...\n","stream":"stdout","time":"..."}``.
_DOCKER = b'{"log":'


def after_prefix(read: Reader) -> Reader:
    """Return a reader of lines with a prefix. A line without a time of its own has the prefix's."""

    def read_after_prefix(line: bytes) -> Entry | None:
        stamp: bytes | None
        if line.startswith(_DOCKER):
            line, stamp = _unwrapped(line)
        else:
            match = _PREFIX.match(line)
            assert match is not None  # it may be empty
            line, stamp = line[match.end() :], match["time"] or match["sent"]
        entry = read(line)
        if entry is not None and entry.at is None and stamp is not None:
            return entry._replace(at=stamps.iso(stamp))
        return entry

    return read_after_prefix


def _unwrapped(line: bytes) -> tuple[bytes, bytes | None]:
    try:
        data = json.loads(line)
        return data["log"].rstrip("\n").encode(), str(data.get("time", "")).encode()
    except (ValueError, RecursionError, AttributeError):
        return b"", None
