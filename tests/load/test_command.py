"""The load generator as a command."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys

import pytest

from benchmarks import load
from tests.load.conftest import OK, TOO_MANY, Serve


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
