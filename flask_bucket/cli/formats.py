"""The formats of access logs: a reader for each, from a line to the request that it records.

The readers are regular expressions and the standard library's JSON. The parsers on PyPI do not
serve: apachelogs 0.6.1 reads 28,000 lines a second where 100,000 are needed, aws-log-parser 3
requires boto3, and haproxy-log-analysis 6 is under the GPL. The tests compare the Apache formats
with apachelogs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import stamps


class Entry(NamedTuple):
    """One request in a log. A tuple, since a log has millions."""

    address: bytes
    #: Empty or a dash if the log names no user.
    user: bytes
    #: Microseconds since 1970; None if the line has no time, or an impossible one.
    at: int | None
    #: The first line of the request, such as ``GET /search?q=a HTTP/1.1``.
    request: bytes
    status: bytes


#: Reads one line; None means that the line is in another format.
Reader = Callable[[bytes], Entry | None]


@dataclass(frozen=True, slots=True)
class Format:
    """A format of access logs."""

    name: str
    #: As people call it: ``the JSON format``.
    title: str
    read: Reader


#: Escaped quotes may stand inside the quotes.
_REQUEST = rb'"(?P<request>(?:[^"\\]++|\\.)*+)"'
#: A prefix of Python's logging is no part of an address.
_ADDRESS = rb"(?!(?:DEBUG|INFO|WARNING|ERROR):)(?P<address>[^ \x00-\x1f]+)"
_ADDRESS_PORT = rb"\[?(?P<address>[^ \]]+)\]?:\d+"
_DATE = rb"[0-3]\d/[A-Z][a-z][a-z]/\d{4}"
_TIME = rb"[0-2]\d:[0-5]\d:[0-6]\d"
_NO_USER = rb"(?P<user>)"

#: ``203.0.113.7 - alice [17/May/2024:10:05:03 +0000] "GET / HTTP/1.1" 200 5`` and whatever
#: follows. A user may hold spaces. A user that holds " - " would be another format's columns: those
#: after a prefix such as journald's, or after the name of a virtual host.
_COMMON = (
    _ADDRESS + rb" [^ ]+ (?!- [^[])(?P<user>(?:(?! - ).)+?) "
    rb"\[(?P<time>" + _DATE + rb":" + _TIME + rb" [+-]\d{4})\] "
    rb"" + _REQUEST + rb" (?P<status>\d{3}|-) (?:\d+|-)(?:\s.*)?"
)

#: ``https 2024-05-17T10:05:03.186641Z app/shop/50dc 203.0.113.7:2817 10.0.0.1:80 0.000 0.001 0.000
#: 200 200 34 366 "GET https://shop.example:443/ HTTP/1.1"`` and more. A classic load balancer
#: writes the same without the type at the beginning.
_ALB = (
    rb"(?:[a-z0-9]+ )?(?P<time>\d{4}-\d\d-\d\dT[\d:.]+Z) [^ ]+ "
    + _ADDRESS_PORT
    + _NO_USER
    + rb" [^ ]+ (?:-?[\d.]+ ){3}(?P<status>\d{3}|-) (?:\d{3}|-) \d+ \d+ "
    + _REQUEST
    + rb"(?: .*)?"
)

#: ``203.0.113.7:33317 [17/May/2024:10:05:03.655] web~ shop/one 10/0/30/69/109 200 2750 - - ----
#: 1/1/1/1/0 0/0 "GET / HTTP/1.1"``, with captured headers in braces before the request.
_HAPROXY = (
    _ADDRESS_PORT
    + _NO_USER
    + rb" \[(?P<time>"
    + _DATE
    + rb":"
    + _TIME
    + rb"\.\d{3})\] [^ ]+ [^ ]+ [-+\d/]+ (?P<status>\d{3}|-1) [^\"]*"
    + _REQUEST
    + rb"(?: .*)?"
)

#: ``INFO:     203.0.113.7:50001 - "GET / HTTP/1.1" 200 OK``. It has no time, so only the prefix of
#: a container's log makes it readable.
_UVICORN = (
    rb"(?:INFO: +)?"
    + _ADDRESS_PORT
    + _NO_USER
    + rb"(?P<time>) - "
    + _REQUEST
    + rb" (?P<status>\d{3})(?: .*)?"
)

#: ``203.0.113.7 - - [17/May/2024 10:05:03] "GET / HTTP/1.1" 200 -``
_WERKZEUG = (
    _ADDRESS
    + rb" - - "
    + _NO_USER
    + rb"\[(?P<time>"
    + _DATE
    + rb" "
    + _TIME
    + rb")\] "
    + _REQUEST
    + rb" (?P<status>\d{3}) (?:\d+|-)"
)


def _reader(pattern: bytes, read_time: Callable[[bytes], int | None]) -> Reader:
    """Make a reader from a pattern with a group for each field of an entry."""
    compiled = re.compile(pattern, re.DOTALL)
    match_of = compiled.fullmatch
    named = ("address", "user", "time", "request", "status")
    groups = [compiled.groupindex[name] for name in named]

    def read(line: bytes) -> Entry | None:
        match = match_of(line)
        if match is None:
            return None
        address, user, stamp, request, status = match.group(*groups)
        return Entry(address, user, read_time(stamp), request, status)

    return read


def _no_time(stamp: bytes) -> None:
    """Read the time of a format that has none."""


class Columns:
    """Reads the W3C's extended log format, whose ``#Fields`` line names its columns.

    Amazon CloudFront writes it with tabs between columns, IIS with spaces.
    """

    def __init__(self) -> None:
        self._columns: list[bytes] = []

    def __call__(self, line: bytes) -> Entry | None:
        if line.startswith(b"#Fields:"):
            self._columns = line.removeprefix(b"#Fields:").split()
            return None
        values = line.split(b"\t") if b"\t" in line else line.split()
        if not self._columns or len(values) != len(self._columns):
            return None
        row = dict(zip(self._columns, values, strict=True))
        address = row.get(b"c-ip")
        if address is None:
            return None
        at = stamps.iso(row.get(b"date", b"") + b"T" + row.get(b"time", b""))
        request = row.get(b"cs-method", b"-") + b" " + row.get(b"cs-uri-stem", b"-")
        user = row.get(b"cs-username", b"")
        return Entry(address, user, at, request, row.get(b"sc-status", b"").rstrip())


#: The names under which JSON logs keep each part: Caddy's (whose request is an object of its own),
#: Traefik's, and the names that people give to nginx's variables. The first one found is taken.
_ADDRESSES = ("client_ip", "remote_ip", "ClientHost", "remote_addr", "client", "clientip", "ip")
_USERS = ("user_id", "ClientUsername", "remote_user", "user")
_TIMES = (
    *("ts", "StartUTC", "StartLocal", "msec", "time_iso8601", "time_local"),
    *("@timestamp", "timestamp", "time", "date"),
)
_METHODS = ("method", "RequestMethod", "request_method")
_PATHS = ("uri", "RequestPath", "request_uri", "path", "url")
_STATUSES = ("status", "DownstreamStatus", "status_code", "statusCode")


def read_json(line: bytes) -> Entry | None:
    """Read a line of JSON, as Caddy and Traefik write it, and nginx if it is told to."""
    if not line.startswith(b"{"):
        return None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    request = data.get("request")
    inner: Mapping[str, Any] = request if isinstance(request, dict) else data
    address = _first(inner, _ADDRESSES)
    if not isinstance(address, str):
        return None
    if not isinstance(request, str):
        request = f"{_first(inner, _METHODS)} {_first(inner, _PATHS)}"
    return Entry(
        _bytes(address),
        _bytes(_first(data, _USERS)),
        stamps.of_any(_first(data, _TIMES)),
        _bytes(request),
        _bytes(_first(data, _STATUSES)),
    )


def _first(data: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    for name in names:
        value = data.get(name)
        if value is not None and value != "":
            return value
    return None


def _bytes(value: Any) -> bytes:
    return b"" if value is None else str(value).encode(errors="backslashreplace")


def formats() -> dict[str, Format]:
    """Return all formats by name, with readers that have seen nothing yet.

    Where two read a line alike, the first one is the right one.
    """
    common = _reader(_COMMON, stamps.clf)
    known = (
        Format("combined", "the common or the combined format", common),
        Format("common", "the common or the combined format", common),
        Format(
            "vhost_combined",
            "Apache's vhost_combined format",
            _reader(rb"[^ \x00-\x1f]+ " + _COMMON, stamps.clf),
        ),
        Format("json", "JSON", read_json),
        Format("alb", "the format of Amazon's load balancers", _reader(_ALB, stamps.iso)),
        Format("cloudfront", "the extended format (CloudFront, IIS)", Columns()),
        Format("haproxy", "HAProxy's format", _reader(_HAPROXY, stamps.clf_without_zone)),
        Format("uvicorn", "uvicorn's format", _reader(_UVICORN, _no_time)),
        Format(
            "werkzeug",
            "the format of Werkzeug's own server",
            _reader(_WERKZEUG, stamps.clf_without_zone),
        ),
    )
    return {known_format.name: known_format for known_format in known}
