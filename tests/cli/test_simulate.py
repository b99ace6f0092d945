"""``flask bucket simulate`` with limits by hand: what it reports, and clear errors."""

from __future__ import annotations

import gzip
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flask_bucket import Limit
from tests.cli.conftest import Run, line


def test_the_report_for_programs_has_exactly_this_shape(
    run: Run, write_log: Callable[..., Path]
) -> None:
    log = write_log(*[line()] * 7, line("192.0.2.1"), "malformed")
    assert run("simulate", log, "--limit", "5/second", "--limit", "1/day", "--json").data == {
        "requests": 8,
        "clients": 2,
        "nameless": 0,
        "malformed": 1,
        "first_malformed": {"log": str(log), "line": 9, "text": "malformed"},
        "limits": [
            {
                "limit": "5/second",
                "refused": 2,
                "share": 0.25,
                "refused_clients": 1,
                "refused_clients_share": 0.5,
                "longest_wait": 0.2,
                "worst": [{"client": "203.0.113.7", "refused": 2, "requests": 7}],
            },
            {
                "limit": "1/day",
                "refused": 6,
                "share": 0.75,
                "refused_clients": 1,
                "refused_clients_share": 0.5,
                "longest_wait": 86400.0,
                "worst": [{"client": "203.0.113.7", "refused": 6, "requests": 7}],
            },
        ],
    }


def test_limits_together_are_reported_as_one_decision(
    run: Run, write_log: Callable[..., Path]
) -> None:
    log = write_log(*[line()] * 7, line("192.0.2.1"))
    options = ("--limit", "5/hour", "--limit", "6/minute burst 4", "--together")
    data = run("simulate", log, *options, "--json").data
    assert (data["requests"], data["allowed"], data["refused"]) == (8, 5, 3)
    assert [limit["refused"] for limit in data["limits"]] == [0, 3]
    said = run("simulate", log, *options).out
    assert "all together" in said
    assert "Most refused by all together:" in said


@pytest.mark.parametrize(("share", "said"), [("0.1%", "0.1%"), ("0%", "0%"), ("2.50 %", "2.5%")])
def test_the_heading_of_suggestions_says_what_was_asked_for(
    run: Run, access_log: Path, share: str, said: str
) -> None:
    out = run("simulate", access_log, "--limit", "5/s", "--suggest", share).out
    assert f"Suggested bursts, to refuse at most {said} of the requests:" in out


def test_together_goes_with_no_suggestion(run: Run, write_log: Callable[..., Path]) -> None:
    log = write_log(line())
    said = run("simulate", log, "--limit", "5/s", "--together", "--suggest", "1%")
    assert "leave out --together" in one_line(said)


def test_people_read_all_that_matters(run: Run, write_log: Callable[..., Path]) -> None:
    log = write_log(*[line()] * 7, line("192.0.2.1"), "malformed")
    said = run("simulate", log, "--limit", "5/minute")
    assert said.out == (
        "8 requests from 2 clients; 1 malformed line left out.\n"
        f"The first malformed line is line 9 of {log}: 'malformed'\n\n"
        "LIMIT     REFUSED   SHARE  CLIENTS AFFECTED  LONGEST WAIT\n"
        "5/minute        2  25.00%        1 (50.00%)          12 s\n\n"
        "Most refused by 5/minute:\n"
        "CLIENT       REFUSED  REQUESTS\n"
        "203.0.113.7        2         7\n"
    )
    assert (said.code, said.err) == (0, "")


def test_a_suggestion_stands_beside_its_limit(run: Run, access_log: Path) -> None:
    said = run("simulate", access_log, "--limit", "30/minute", "--suggest", "1%", "--json").data
    (judged,) = said["limits"]
    suggestion = judged["suggestion"]
    assert suggestion["refused"] <= 10 < judged["refused"]
    burst = Limit.parse(suggestion["limit"]).capacity
    smaller = f"30/minute burst {burst - 1}"
    assert (
        run("simulate", access_log, "--limit", smaller, "--json").data["limits"][0]["refused"] > 10
    )


def test_the_worst_clients_come_first_and_no_more_than_asked_for(
    run: Run, write_log: Callable[..., Path]
) -> None:
    log = write_log(*(line(f"192.0.2.{n}") for n in range(1, 9) for _ in range(n)))
    said = run("simulate", log, "--limit", "1/day", "--worst", 2, "--json").data
    assert said["limits"][0]["worst"] == [
        {"client": "192.0.2.8", "refused": 7, "requests": 8},
        {"client": "192.0.2.7", "refused": 6, "requests": 7},
    ]


def test_the_order_of_lines_does_not_matter(
    run: Run, access_log: Path, write_log: Callable[..., Path]
) -> None:
    lines = access_log.read_text().splitlines()
    random.Random(7).shuffle(lines)
    options = ("--limit", "30/minute", "--limit", "1/second", "--json")
    assert run("simulate", write_log(*lines), *options).data == (
        run("simulate", access_log, *options).data
    )


def test_several_logs_are_one(run: Run, write_log: Callable[..., Path], tmp_path: Path) -> None:
    log = write_log(line(), line())
    packed = tmp_path / "access.log.1.gz"
    packed.write_bytes(gzip.compress((line() + "\n").encode()))
    said = run(
        "simulate", packed, log, "-", "--limit", "1/day", "--json", stdin=(line() + "\n").encode()
    )
    assert said.data["limits"][0]["refused"] == 3


def test_standard_input_may_be_packed(run: Run) -> None:
    stdin = gzip.compress((line() + "\n").encode())
    assert run("simulate", "-", "--limit", "1/s", "--json", stdin=stdin).data["requests"] == 1


def test_clients_may_be_users(run: Run, write_log: Callable[..., Path]) -> None:
    log = write_log(line(user="alice"), line("192.0.2.1", user="alice"), line(user="-"))
    said = run("simulate", log, "--by", "user", "--limit", "1/day", "--json").data
    assert (said["requests"], said["clients"], said["limits"][0]["refused"]) == (2, 1, 1)


def test_what_clients_call_themselves_does_not_reach_the_terminal_as_it_is(
    run: Run, write_log: Callable[..., Path]
) -> None:
    log = write_log(*[line(user="al\x1b[31mice")] * 2)
    said = run("simulate", log, "--by", "user", "--limit", "1/day")
    assert "\x1b" not in said.out
    assert r"al\x1b[31mice" in said.out


def one_line(said: Any) -> str:
    assert said.code == 2
    assert said.out == ""
    assert said.err.count("\n") == 1
    return str(said.err)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["LOG"], "No limit"),
        (["--limit", "5/s"], "No log"),
        (["LOG", "--limit", "lots"], "not a limit"),
        (["LOG", "--limit", "5/s", "--suggest", "many"], "not a share"),
        (["LOG", "--limit", "5/s", "--suggest", "0.1"], "such as 0.1%"),
        (["LOG", "--limit", "5/s", "--suggest", "0"], "not a share"),
        (["LOG", "--limit", "5/s", "--suggest", "1%%"], "not a share"),
        (["LOG", "--limit", "5/s", "--format", "morse"], "combined"),
        (["LOG", "--limit", "5/s", "--format", "json"], "mostly malformed"),
        (["LOG", "--limit", "5/s", "--suggest", "100%"], "not a share"),
        (["LOG", "--limit", "5/s", "--suggest", "-1%"], "not a share"),
        (["LOG", "--limit", "5/s", "--by", "cookie"], "cookie"),
        (["LOG", "--limit", "5/s", "--ipv6-prefix", "0"], "0"),
        (["LOG", "--limit", "5/s", "--frobnicate"], "frobnicate"),
        (["LOG", "--limit", "5/s", "--worst"], "--worst"),
        (["LOG", "--limit", "5/s", "--plot", "picture.txt"], ".png, .svg or .pdf"),
        (["LOG", "--limit", "5/s", "--plot", "picture.eps"], ".png, .svg or .pdf"),
        (["LOG", "--limit", "5/s", "--plot", "nowhere/a.png"], "no directory"),
        (["LOG", "--limit", "5/s", "--by", "user"], "names a user"),
        (["/nonexistent/a.log", "--limit", "5/s"], "No such file"),
    ],
)
def test_wrong_arguments_are_one_clear_line(
    arguments: list[str], why: str, run: Run, write_log: Callable[..., Path]
) -> None:
    log = str(write_log(line()))
    said = run("simulate", *(log if a == "LOG" else a for a in arguments))
    assert why in one_line(said)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is empty"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "binary"),
        (bytes(range(1, 256)) * 99, "no known format"),
        (gzip.compress(b"", mtime=0), "it is empty"),
        (b"\x1f\x8b\x08\x00garbage", "damaged gzip"),
        (b"one\ntwo\n", "no known format"),
    ],
)
def test_what_is_no_log_is_one_clear_line(
    content: bytes, why: str, run: Run, tmp_path: Path
) -> None:
    log = tmp_path / "what.log"
    log.write_bytes(content)
    said = one_line(run("simulate", log, "--limit", "5/s"))
    assert why in said
    assert "what.log" in said


def test_a_directory_is_one_clear_line(run: Run, tmp_path: Path) -> None:
    assert "is a directory" in one_line(run("simulate", tmp_path, "--limit", "5/s"))


def test_an_unreadable_file_is_one_clear_line(
    run: Run, write_log: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = write_log(line())

    def refuse(*_: object) -> None:  # whoever runs the tests may be allowed to read everything
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert "Permission denied" in one_line(run("simulate", log, "--limit", "5/s"))


def test_a_picture_is_drawn(run: Run, access_log: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "picture.png"
    said = run("simulate", access_log, "--limit", "30/minute", "--plot", picture, "--suggest", "0%")
    assert said.code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_one_request_can_be_drawn(run: Run, write_log: Callable[..., Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "picture.svg"
    said = run("simulate", write_log(line()), "--limit", "1/s", "--plot", picture)
    assert said.code == 0
    assert "svg" in picture.read_text()


def test_without_matplotlib_the_extra_is_named(
    run: Run, write_log: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = run("simulate", write_log(line()), "--limit", "1/s", "--plot", "a.png")
    assert said.code == 1
    assert "flask-bucket[plot]" in said.err
    assert said.err.count("\n") == 1


def test_no_application_is_needed(write_log: Callable[..., Path], tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FLASK_")}
    command = [sys.executable, "-m", "flask", "bucket", "simulate", str(write_log(line()))]
    done = subprocess.run(
        [*command, "--limit", "5/s"], capture_output=True, cwd=tmp_path, env=environment, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("1 request from 1 client.")


def test_many_lines_fit_in_bounded_memory(tmp_path: Path) -> None:
    """Ten times the lines of as many clients cost little but their eight bytes each."""
    script = (
        "import resource, sys\n"
        "from flask_bucket.cli.simulate import read_logs\n"
        "from flask_bucket.cli.traffic import Traffic\n"
        "traffic = Traffic()\n"
        "read_logs(sys.argv[1:], None, traffic)\n"
        "traffic.sort()\n"
        "print(traffic.requests, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )

    agent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko)"
    page = "".join(
        line(
            f"198.51.{n % 100}.{n % 250}", f"17/May/2015:{n % 24:02}:{n % 60:02}:{n % 59:02} +0000"
        )
        + f' "http://example.org/{n}" "{agent}"\n'
        for n in range(10_000)
    )

    def peak_of(count: int) -> int:
        log = tmp_path / f"{count}.log"
        with log.open("w") as file:
            for _ in range(count // 10_000):
                file.write(page)
        done = subprocess.run(
            [sys.executable, "-c", script, str(log)], capture_output=True, text=True, check=True
        )
        requests, kilobytes = map(int, done.stdout.split())
        assert requests == count
        return kilobytes * 1024

    grown = peak_of(300_000) - peak_of(30_000)
    assert grown < 270_000 * 40
