"""Put an HTTP server under load and report its throughput, latencies and answers.

    python benchmarks/load.py http://127.0.0.1:8000/ --requests 10000 --concurrency 50

What is measured:

* The load is closed: each concurrent client keeps one connection, and sends its next request when
  the last one is answered. So a slow server receives fewer requests.
* A latency runs from just before a request is sent until the last byte of its response is read.
  It includes opening a connection, for the first request and after the server closed the
  connection. Requests without a response have no latency.
* Throughput is responses per second. Transport errors do not count, and nothing is sent twice.
* Percentiles are nearest-rank: the smallest measured latency that at least p per cent of the
  latencies do not exceed. So each percentile is a measured latency.
* The measuring process draws the progress bar twice a second, which may delay a few responses by a
  millisecond or two. Redirect stderr to switch it off.

Exit codes: 0, or 1 if no request was answered, 2 for wrong arguments, 130 after Ctrl-C.

This program reads responses with its own code. aiohttp was the fastest of the clients that we tried
(the others were http.client, urllib3 and httpx). It takes about twice the CPU time per request,
which a server on the same machine then lacks.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import itertools
import json
import math
import os
import re
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn
from urllib.parse import urlsplit

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

DEFAULT_REQUESTS = 10_000
# 198.18.0.0/15 is reserved for benchmarks (RFC 2544), so no identity is a real address.
ADDRESSES = 2 * 256 * 256
TICK_SECONDS = 0.5

# RFC 9110, section 5.6.2: the characters of a method or of a header's name.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# EOFError is a response that ends early; the last two are responses that are not HTTP.
_TRANSPORT_ERRORS = (OSError, EOFError, ValueError, asyncio.LimitOverrunError)

Watch = Callable[[int, float], None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The requests to send, and how to send them.

    :param url: an ``http://`` URL. TLS is not supported, because it would be measured too.
    :param requests: how many requests to send; 10,000 if no duration is given either.
    :param duration: how many seconds to send, instead of a number of requests. At the end, the
        run waits for requests that are under way.
    :param concurrency: how many clients send at the same time, each on one connection.
    :param clients: how many identities to spread the requests over: request ``i`` carries
        identity ``i % clients``. None sends no identity.
    :param identity_header: the header that carries the identity: ``198.18.a.b`` in
        ``X-Forwarded-For``, ``client-7`` in any other.
    :param method: the request method. No request has a body.
    :param timeout: seconds to wait for a whole response before giving up on it.
    :raises ValueError: for a value outside its range.
    """

    url: str
    requests: int | None = None
    duration: float | None = None
    concurrency: int = 50
    clients: int | None = None
    identity_header: str = "X-Forwarded-For"
    method: str = "GET"
    timeout: float = 10.0

    def __post_init__(self) -> None:
        _check_url(self.url)
        if self.requests is not None and self.duration is not None:
            raise ValueError("give either a number of requests or a duration, not both")
        for name in ("requests", "concurrency", "clients"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise ValueError(f"{name} must be at least 1, not {count}")
        for name in ("duration", "timeout"):
            seconds = getattr(self, name)
            if seconds is not None and not 0 < seconds < math.inf:
                raise ValueError(f"{name} must be a number of seconds above 0, not {seconds}")
        for name in ("method", "identity_header"):
            if not _TOKEN.fullmatch(getattr(self, name)):
                raise ValueError(f"{name} {getattr(self, name)!r} is not a name HTTP allows")
        if self.sends_addresses and (self.clients or 0) > ADDRESSES:
            raise ValueError(f"clients must be at most {ADDRESSES} in X-Forwarded-For")

    @property
    def sends_addresses(self) -> bool:
        return self.identity_header.lower() == "x-forwarded-for"


@dataclasses.dataclass(frozen=True, slots=True)
class Latencies:
    """A summary of latencies, in milliseconds; percentiles are nearest-rank."""

    min: float
    mean: float
    p50: float
    p95: float
    p97_5: float
    p99: float
    max: float


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """The result of a run."""

    #: Requests that were answered or failed, without those that Ctrl-C interrupted.
    requests: int
    seconds: float
    #: Responses per second.
    throughput: float
    #: None if no request was answered.
    latencies_ms: Latencies | None
    #: How many responses had each status.
    statuses: dict[int, int]
    #: How many requests had no response, by reason.
    errors: dict[str, int]
    interrupted: bool


def run(plan: Plan, watch: Watch | None = None) -> Report:
    """Carry out ``plan`` and report.

    Transport errors are counted, not raised. Ctrl-C ends the run but not the caller: the report
    covers the requests until then, and says that the run was interrupted.

    :param watch: called regularly with the number of finished requests and the seconds passed.
    """
    tally = _Tally()
    interrupted = False
    started = time.perf_counter()
    try:
        asyncio.run(_send_all(plan, tally, watch))
    except KeyboardInterrupt:
        interrupted = True
    return tally.report(time.perf_counter() - started, interrupted)


def summarise(seconds: Sequence[float]) -> Latencies:
    """Summarise latencies given in seconds, of which there must be at least one."""
    ordered = sorted(second * 1000 for second in seconds)
    return Latencies(
        min=ordered[0],
        mean=math.fsum(ordered) / len(ordered),
        p50=percentile(ordered, 50),
        p95=percentile(ordered, 95),
        p97_5=percentile(ordered, 97.5),
        p99=percentile(ordered, 99),
        max=ordered[-1],
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile of a sorted sequence that is not empty."""
    # Multiply before dividing: 0.07 * 100 is a little above 7, and would raise the rank.
    rank = math.ceil(percent * len(ordered) / 100)
    return ordered[max(rank, 1) - 1]


@dataclasses.dataclass(slots=True)
class _Tally:
    """The counts so far."""

    latencies: list[float] = dataclasses.field(default_factory=list)
    statuses: Counter[int] = dataclasses.field(default_factory=Counter)
    errors: Counter[str] = dataclasses.field(default_factory=Counter)

    @property
    def requests(self) -> int:
        return len(self.latencies) + self.errors.total()

    def report(self, seconds: float, interrupted: bool) -> Report:
        return Report(
            requests=self.requests,
            seconds=seconds,
            throughput=len(self.latencies) / seconds,
            latencies_ms=summarise(self.latencies) if self.latencies else None,
            statuses=dict(sorted(self.statuses.items())),
            errors=dict(sorted(self.errors.items())),
            interrupted=interrupted,
        )


async def _send_all(plan: Plan, tally: _Tally, watch: Watch | None) -> None:
    numbers = _numbers(plan)
    watching = asyncio.create_task(_call_regularly(watch, tally)) if watch else None
    async with asyncio.TaskGroup() as group:
        for _ in range(plan.concurrency):
            group.create_task(_send_in_turn(plan, numbers, tally))
    if watching:
        watching.cancel()


async def _call_regularly(watch: Watch, tally: _Tally) -> None:
    started = time.perf_counter()
    while True:
        watch(tally.requests, time.perf_counter() - started)
        await asyncio.sleep(TICK_SECONDS)


def _numbers(plan: Plan) -> Iterator[int]:
    """Number the requests. All clients draw from this one iterator until it ends."""
    if plan.duration is None:
        return iter(range(plan.requests or DEFAULT_REQUESTS))
    end = time.perf_counter() + plan.duration
    return itertools.takewhile(lambda _: time.perf_counter() < end, itertools.count())


async def _send_in_turn(plan: Plan, numbers: Iterator[int], tally: _Tally) -> None:
    """Be one client: send one request after another, and count the results."""
    head = _request_head(plan)
    with contextlib.closing(_Connection(plan)) as connection:
        for number in numbers:
            request = head + _identity_line(plan, number) + b"\r\n"
            started = time.perf_counter()
            try:
                status = await connection.exchange(request)
            except _TRANSPORT_ERRORS as error:
                connection.close()
                tally.errors[_kind(error)] += 1
                # A refused connection may fail without ever waiting. Without this pause, neither
                # Ctrl-C nor the other clients would get a turn.
                await asyncio.sleep(0)
            else:
                tally.latencies.append(time.perf_counter() - started)
                tally.statuses[status] += 1


def _request_head(plan: Plan) -> bytes:
    parts = urlsplit(plan.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [f"{plan.method} {target} HTTP/1.1", f"Host: {parts.netloc}", "Accept: */*"]
    if plan.method in ("POST", "PUT", "PATCH"):
        lines.append("Content-Length: 0")
    return "".join(f"{line}\r\n" for line in lines).encode("ascii")


def _identity_line(plan: Plan, number: int) -> bytes:
    if plan.clients is None:
        return b""
    client = number % plan.clients
    if plan.sends_addresses:
        high, low = divmod(client, 256)
        identity = f"198.{18 + high // 256}.{high % 256}.{low}"
    else:
        identity = f"client-{client}"
    return f"{plan.identity_header}: {identity}\r\n".encode("ascii")


class _Connection:
    """A connection that opens when it is needed, and again after the server closed it."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def exchange(self, request: bytes) -> int:
        """Send ``request``, read all of its response and return the status."""
        async with asyncio.timeout(self._plan.timeout):
            reader, writer = await self._open()
            writer.write(request)
            status, reusable = await _read_response(reader, self._plan.method)
        if not reusable:
            self.close()
        return status

    def close(self) -> None:
        if self._streams:
            self._streams[1].close()
            self._streams = None

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams:
            reader, writer = self._streams
            if not reader.at_eof() and not writer.is_closing():
                return self._streams
            self.close()
        parts = urlsplit(self._plan.url)
        self._streams = await asyncio.open_connection(parts.hostname, parts.port or 80)
        return self._streams


async def _read_response(reader: asyncio.StreamReader, method: str) -> tuple[int, bool]:
    """Read one response; return its status, and whether its connection can be used again.

    How the end of a body is found is laid down in RFC 9112, section 6.3.

    :raises ValueError: if it is not an HTTP/1 response.
    """
    status = 0
    while status < 200:  # 1xx only announce the response
        version, status, headers = _parse_head(await reader.readuntil(b"\r\n\r\n"))
    connection = headers.get(b"connection", b"").lower()
    reusable = b"keep-alive" in connection if version == b"HTTP/1.0" else b"close" not in connection
    if method == "HEAD" or status in (204, 304):
        pass
    elif headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        await _skip_chunks(reader)
    elif b"content-length" in headers:
        await reader.readexactly(int(headers[b"content-length"]))
    else:
        await reader.read()
        reusable = False
    return status, reusable


def _parse_head(head: bytes) -> tuple[bytes, int, dict[bytes, bytes]]:
    first, *lines = head[:-4].split(b"\r\n")
    version, status, *_ = first.split(maxsplit=2)
    if not version.startswith(b"HTTP/1."):
        raise ValueError(f"expected the status line of an HTTP/1 response, not {first!r}")
    headers = {}
    for line in lines:
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip()
    return version, int(status), headers


async def _skip_chunks(reader: asyncio.StreamReader) -> None:
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        await reader.readexactly(size + len(b"\r\n"))
    while await reader.readuntil(b"\r\n") != b"\r\n":  # trailers
        pass


def _kind(error: Exception) -> str:
    match error:
        case TimeoutError():
            return "timeout"
        case ConnectionRefusedError():
            return "connection refused"
        case ConnectionResetError() | BrokenPipeError():
            return "connection reset"
        case EOFError():
            return "connection closed early"
        case socket.gaierror():
            return "unknown host"
        case OSError(errno=int(number)):
            return os.strerror(number).lower()
        case OSError():  # asyncio tried several addresses, and says what went wrong only in words
            return "connection failed"
    return "bad response"


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname or parts.port == 0 or "@" in parts.netloc:
        raise ValueError(f"expected a URL like http://host:port/path, not {url!r}")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError(f"percent-encode what is not plain ASCII in the URL {url!r}")
    # Raise the ValueError for an impossible host name here, and not for every request.
    parts.hostname.encode("idna")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = vars(parser.parse_args(arguments))
    as_json = options.pop("json")
    if options["clients"] is None and "identity_header" in options:
        parser.error("--identity-header needs --clients, the number of identities to send")
    try:
        plan = Plan(**options)
    except ValueError as error:
        parser.error(str(error))
    with _progress_bar(plan) as watch:
        report = run(plan, watch)
    sys.stdout.write(_as_json(plan, report) if as_json else _as_text(report))
    if report.interrupted:
        return 130
    return 0 if report.statuses else 1


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Print the error in one line, without the usage."""
        self.exit(2, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(description="Put an HTTP server under load and measure it.")
    add = parser.add_argument
    add("url", help="an http:// URL")
    add("--requests", type=int, metavar="N", help=f"default: {DEFAULT_REQUESTS}")
    add("--duration", type=float, metavar="SECONDS", help="instead of a number of requests")
    add("--concurrency", type=int, default=50, metavar="N", help="connections; default: 50")
    add("--clients", type=int, metavar="N", help="spread the requests over N identities")
    add(
        "--identity-header",
        default=argparse.SUPPRESS,
        metavar="NAME",
        help="header for client-0, client-1, ...; default: X-Forwarded-For, with addresses",
    )
    add("--method", default="GET", help="default: GET")
    add("--timeout", type=float, default=10.0, metavar="SECONDS", help="default: 10")
    add("--json", action="store_true", help="print one JSON object instead of text")
    return parser


@contextlib.contextmanager
def _progress_bar(plan: Plan) -> Iterator[Watch | None]:
    if not sys.stderr.isatty():
        yield None
        return
    columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    # Without a refresh thread, which would compete with the clients for the GIL.
    with Progress(
        *columns, console=Console(stderr=True), auto_refresh=False, transient=True
    ) as progress:
        task = progress.add_task("", total=plan.duration or plan.requests or DEFAULT_REQUESTS)

        def watch(requests: int, seconds: float) -> None:
            completed = seconds if plan.duration else requests
            progress.update(task, completed=completed, refresh=True)

        yield watch


def _as_json(plan: Plan, report: Report) -> str:
    return json.dumps({"plan": dataclasses.asdict(plan), **dataclasses.asdict(report)}) + "\n"


def _as_text(report: Report) -> str:
    stopped = " (interrupted)" if report.interrupted else ""
    lines = [
        f"requests    {report.requests} in {report.seconds:.2f} s{stopped}",
        f"throughput  {report.throughput:.1f} responses/s",
    ]
    if report.latencies_ms:
        for name, value in dataclasses.asdict(report.latencies_ms).items():
            lines.append(f"{name.replace('_', '.'):<12}{value:.2f} ms")
    lines += [f"status {status}  {count}" for status, count in report.statuses.items()]
    lines += [f"error       {count} x {kind}" for kind, count in report.errors.items()]
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
