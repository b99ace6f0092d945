"""The load generator, against small servers that answer in known ways."""

from __future__ import annotations

import http.server
import io
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from email.message import Message
from typing import Any

import pytest

from benchmarks import load

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n"
TOO_MANY = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        number = next(self.server.numbers)
        self.server.requests.append((self.requestline, self.headers))
        answer = self.server.answer(number)
        if answer is None:
            self.close_connection = True
        else:
            self.wfile.write(answer)
            self.close_connection = self.server.closes

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    """Answers request ``i`` with ``answer(i)``. If that is None, it closes the connection."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, answer: Callable[[int], bytes | None], *, closes: bool) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/"
        self.answer = answer
        self.closes = closes
        self.numbers = itertools.count()
        self.connections = 0
        self.requests: list[tuple[str, Message]] = []

    def sent(self, header: str) -> list[str | None]:
        return [headers[header] for _, headers in self.requests]

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections += 1
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet: some of the clients here go away without a word."""


class Serve:
    """Starts servers, and stops them after the test."""

    def __init__(self) -> None:
        self._servers: list[Server] = []

    def __call__(
        self, answer: bytes | Callable[[int], bytes | None] = OK, *, closes: bool = False
    ) -> Server:
        server = Server(answer if callable(answer) else lambda _: answer, closes=closes)
        self._servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return server

    def stop(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    starter = Serve()
    yield starter
    starter.stop()


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port which refuses connections: it is taken, but nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


# What is sent


@pytest.mark.parametrize(("requests", "concurrency"), [(1, 1), (1, 20), (101, 20)])
def test_exactly_the_requests_asked_for_are_sent(
    serve: Serve, requests: int, concurrency: int
) -> None:
    server = serve()
    report = load.run(load.Plan(url=server.url, requests=requests, concurrency=concurrency))
    assert len(server.requests) == report.requests == requests
    assert report.statuses == {200: requests}
    assert report.errors == {}


def test_each_client_keeps_one_connection(serve: Serve) -> None:
    """All of them wait for the last to arrive, so that none can do the work of another."""
    together = threading.Barrier(4)

    def answer(_: int) -> bytes:
        together.wait()
        return OK

    server = serve(answer)
    load.run(load.Plan(url=server.url, requests=40, concurrency=4))
    assert server.connections == 4


def test_a_duration_ends_the_run(serve: Serve) -> None:
    server = serve()
    report = load.run(load.Plan(url=server.url, duration=0.1, concurrency=2))
    assert report.seconds >= 0.1
    assert len(server.requests) == report.requests >= 1
    assert report.statuses == {200: report.requests}


def test_the_request_names_method_target_and_host(serve: Serve) -> None:
    server = serve()
    load.run(load.Plan(url=f"{server.url}a/b?c=d#e", requests=1, method="POST"))
    [(line, headers)] = server.requests
    assert line == "POST /a/b?c=d HTTP/1.1"
    assert headers["Host"] == f"127.0.0.1:{server.server_port}"
    assert headers["Content-Length"] == "0"


def test_identities_are_addresses_spread_evenly(serve: Serve) -> None:
    server = serve()
    load.run(load.Plan(url=server.url, requests=70, concurrency=5, clients=7))
    assert Counter(server.sent("X-Forwarded-For")) == {f"198.18.0.{n}": 10 for n in range(7)}


def test_request_i_carries_identity_i_modulo_clients(serve: Serve) -> None:
    server = serve()
    load.run(
        load.Plan(url=server.url, requests=5, concurrency=1, clients=3, identity_header="X-API-Key")
    )
    sent = server.sent("X-API-Key")
    assert sent == ["client-0", "client-1", "client-2", "client-0", "client-1"]
    assert server.sent("X-Forwarded-For") == [None] * 5


def test_identities_go_on_after_256(serve: Serve) -> None:
    server = serve()
    load.run(load.Plan(url=server.url, requests=258, concurrency=1, clients=300))
    assert server.sent("X-Forwarded-For")[254:] == [
        "198.18.0.254",
        "198.18.0.255",
        "198.18.1.0",
        "198.18.1.1",
    ]


def test_no_identity_is_sent_unless_asked_for(serve: Serve) -> None:
    server = serve()
    load.run(load.Plan(url=server.url, requests=3))
    assert server.sent("X-Forwarded-For") == [None] * 3


# What comes back


def test_statuses_are_counted(serve: Serve) -> None:
    server = serve(lambda number: OK if number < 10 else TOO_MANY)
    report = load.run(load.Plan(url=server.url, requests=30, concurrency=3))
    assert report.statuses == {200: 10, 429: 20}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(OK, id="length"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length:3\r\n\r\nok\n", id="lower case"),
        pytest.param(b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", id="no reason"),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", id="204"),
        pytest.param(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n", id="304"),
        pytest.param(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK, id="interim"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"3;extension=1\r\nok\n\r\nA\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n",
            id="chunks",
        ),
        pytest.param(
            b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n",
            id="HTTP 1.0",
        ),
    ],
)
def test_the_end_of_a_response_is_found_and_its_connection_used_again(
    serve: Serve, answer: bytes
) -> None:
    server = serve(answer)
    report = load.run(load.Plan(url=server.url, requests=5, concurrency=1))
    assert list(report.statuses.values()) == [5]
    assert report.errors == {}
    assert server.connections == 1


def test_a_response_to_head_has_no_body_to_wait_for(serve: Serve) -> None:
    server = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n")
    report = load.run(load.Plan(url=server.url, requests=5, concurrency=1, method="HEAD"))
    assert report.statuses == {200: 5}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(
            b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 3\r\n\r\nok\n", id="announced"
        ),
        pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nok\n", id="HTTP 1.0"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nok\n", id="end of the body"),
    ],
)
def test_a_server_may_close_each_connection(serve: Serve, answer: bytes) -> None:
    server = serve(answer, closes=True)
    report = load.run(load.Plan(url=server.url, requests=20, concurrency=3))
    assert report.statuses == {200: 20}
    assert report.errors == {}
    assert server.connections == 20


# Transport errors


def test_a_refused_connection_is_counted(closed_port: int) -> None:
    report = load.run(load.Plan(url=f"http://127.0.0.1:{closed_port}/", requests=10))
    assert report.errors == {"connection refused": 10}
    assert report.requests == 10
    assert report.statuses == {}
    assert report.latencies_ms is None
    assert report.throughput == 0


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", "connection closed early"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nok\n", "connection closed early"),
        (b"220 mail.example ESMTP\r\n\r\n", "bad response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", "bad response"),
        (b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 100_000 + b"\r\n\r\n", "bad response"),
    ],
    ids=["nothing", "half a body", "another protocol", "no number", "endless header"],
)
def test_a_broken_response_is_counted(serve: Serve, answer: bytes, error: str) -> None:
    server = serve(answer, closes=True)
    report = load.run(load.Plan(url=server.url, requests=6, concurrency=2))
    assert report.errors == {error: 6}


def test_an_answer_that_does_not_come_is_a_timeout(serve: Serve) -> None:
    never = threading.Event()
    server = serve(lambda _: OK if never.wait() else None)
    report = load.run(load.Plan(url=server.url, requests=2, concurrency=2, timeout=0.05))
    never.set()
    assert report.errors == {"timeout": 2}


def test_an_error_does_not_end_the_run_nor_is_anything_sent_twice(serve: Serve) -> None:
    server = serve(lambda number: None if number % 3 == 0 else OK)
    report = load.run(load.Plan(url=server.url, requests=30, concurrency=4))
    assert report.statuses == {200: 20}
    assert report.errors == {"connection closed early": 10}
    assert len(server.requests) == 30


# The summary


def test_percentiles_are_nearest_rank() -> None:
    eighths = [number / 8 for number in reversed(range(1, 101))]
    assert load.summarise(eighths) == load.Latencies(
        min=125, mean=6312.5, p50=6250, p95=11875, p97_5=12250, p99=12375, max=12500
    )


@pytest.mark.parametrize(
    ("size", "percent", "rank"),
    [(1, 50, 1), (1, 99, 1), (2, 50, 1), (2, 95, 2), (3, 50, 2), (20, 95, 19), (40, 97.5, 39)],
)
def test_percentiles_of_a_small_sample(size: int, percent: float, rank: int) -> None:
    assert load.percentile(range(1, size + 1), percent) == rank


def test_a_single_latency_is_every_figure() -> None:
    assert load.summarise([0.5]) == load.Latencies(500, 500, 500, 500, 500, 500, 500)


# The command


def test_the_script_runs_and_prints_one_json_object(serve: Serve) -> None:
    server = serve()
    command = [sys.executable, load.__file__, server.url, "--requests", "12", "--json"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stderr == ""
    printed = json.loads(result.stdout)
    assert printed["requests"] == 12
    assert printed["statuses"] == {"200": 12}
    assert printed["errors"] == {}
    assert printed["interrupted"] is False
    assert printed["throughput"] == pytest.approx(12 / printed["seconds"])
    assert list(printed["latencies_ms"]) == ["min", "mean", "p50", "p95", "p97_5", "p99", "max"]
    assert printed["plan"]["url"] == server.url
    assert printed["plan"]["concurrency"] == 50


def test_the_text_names_every_figure(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    server = serve(lambda number: [OK, TOO_MANY, None][number])
    assert load.main([server.url, "--requests", "3", "--concurrency", "1"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    figures = ["min", "mean", "p50", "p95", "p97.5", "p99", "max"]
    assert names == ["requests", "throughput", *figures, "status", "status", "error"]


def test_options_reach_the_requests(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    server = serve()
    options = [
        "--requests",
        "2",
        "--clients",
        "1",
        "--identity-header",
        "X-Key",
        "--method",
        "POST",
    ]
    assert load.main([server.url, *options]) == 0
    assert server.sent("X-Key") == ["client-0"] * 2
    assert [line.split()[0] for line, _ in server.requests] == ["POST"] * 2


def test_a_run_with_only_errors_exits_1(
    closed_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{closed_port}/"
    assert load.main([url, "--requests", "3", "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed["latencies_ms"] is None
    assert printed["errors"] == {"connection refused": 3}


def test_ctrl_c_reports_what_was_done_so_far(
    serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(number: int) -> bytes:
        if number == 500:  # with 50 connections, so many were answered
            os.kill(os.getpid(), signal.SIGINT)
        return OK

    # A shell that starts the tests in the background has them ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        exit_code = load.main([serve(answer).url, "--duration", "60", "--json"])
    finally:
        signal.signal(signal.SIGINT, before)
    assert exit_code == 130
    printed = json.loads(capsys.readouterr().out)
    assert printed["interrupted"] is True
    assert printed["requests"] == sum(printed["statuses"].values()) > 0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_progress_bar_beside_the_report(
    serve: Serve, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    assert load.main([serve().url, "--requests", "5", "--json"]) == 0
    assert "%" in terminal.getvalue()
    assert json.loads(capsys.readouterr().out)["requests"] == 5


URL = "http://127.0.0.1:1/"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        [URL, "--requests", "0"],
        [URL, "--requests", "-1"],
        [URL, "--requests", "many"],
        [URL, "--requests", "10", "--duration", "1"],
        [URL, "--duration", "0"],
        [URL, "--duration", "-1"],
        [URL, "--duration", "nan"],
        [URL, "--duration", "inf"],
        [URL, "--concurrency", "0"],
        [URL, "--timeout", "0"],
        [URL, "--clients", "0"],
        [URL, "--clients", str(load.ADDRESSES + 1)],
        [URL, "--identity-header", "X-API-Key"],
        [URL, "--clients", "1", "--identity-header", "X-API-Key: me"],
        [URL, "--method", "GET /"],
        ["127.0.0.1:8000"],
        ["https://127.0.0.1/"],
        ["http:///path"],
        ["http://me:secret@127.0.0.1/"],
        ["http://127.0.0.1:0/"],
        ["http://127.0.0.1:65536/"],
        ["http://a..b/"],
        ["http://127.0.0.1/a b"],
        ["http://127.0.0.1/ü"],
        ["http://127.0.0.1/\r\nX-Smuggled: 1"],
    ],
    ids=" ".join,
)
def test_nonsense_is_refused_in_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        load.main(arguments)
    assert exit_.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
