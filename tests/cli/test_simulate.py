"""``flask bucket simulate``: equal to the reference, exact, and clear about what it was given."""

from __future__ import annotations

import gzip
import os
import random
import subprocess
import sys
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from hypothesis import given
from hypothesis import strategies as st

from flask_bucket import Charge, Limit, Limiter, MemoryStore
from flask_bucket.cli.bursts import least_burst
from flask_bucket.cli.replay import judge, judge_together, peak, refused_times, suggested
from flask_bucket.cli.traffic import Traffic
from flask_bucket.clients import normal_address
from flask_bucket.limits import SECOND
from tests.cli.conftest import Run, line, run_in

LIMITS = [
    "5/second burst 20",
    "1/second",
    "2/second burst 3",
    "1/second burst 5",
    "30/minute",
    "100/minute",
    "10/minute burst 3",
    "7 per 3 seconds burst 2",
    "0.1/second burst 4",
    "100/hour",
    "20 per 15 minutes burst 25",
    "50/day",
    "10007 per 30 days burst 6",
]


def replayed(log: Path, limit: Limit) -> Counter[str]:
    """Return the refusals by client: another parser, another arithmetic, the same question."""
    came = []
    for text in log.read_text().splitlines():
        stamp = text.partition("[")[2].partition("]")[0]
        client = normal_address(text.split()[0]) or ""
        came.append((datetime.strptime(stamp, "%d/%b/%Y:%H:%M:%S %z"), client))
    rate = Fraction(limit.refill_rate) / Fraction(limit.per)
    balances: dict[str, tuple[Fraction, datetime]] = {}
    refused: Counter[str] = Counter()
    for at, client in sorted(came, key=lambda of: of[0]):
        balance, last = balances.get(client, (Fraction(limit.capacity), at))
        seconds = Fraction(int((at - last).total_seconds()))
        balance = min(Fraction(limit.capacity), balance + seconds * rate)
        if balance >= 1:
            balance -= 1
        else:
            refused[client] += 1
        balances[client] = balance, at
    return refused


@pytest.mark.parametrize("text", LIMITS)
def test_a_log_is_judged_as_exact_rationals_judge_it(text: str, each_log: Path, run: Run) -> None:
    expected = replayed(each_log, Limit.parse(text))
    data = run("simulate", each_log, "--limit", text, "--worst", 10_000, "--json").data
    lines = each_log.read_text().splitlines()
    assert (data["requests"], data["malformed"]) == (len(lines), 0)
    assert data["clients"] == len({normal_address(line.split()[0]) for line in lines})
    (judged,) = data["limits"]
    assert {w["client"]: w["refused"] for w in judged["worst"]} == dict(expected)
    assert judged["refused"] == expected.total()
    assert judged["refused_clients"] == len(expected)


@dataclass(slots=True)
class Told:
    """What the reference store told about one limit, or about all together."""

    refused: list[int] = field(default_factory=list)
    longest_wait: int = 0

    def refuse(self, now: int, retry_after: float | None) -> None:
        assert retry_after is not None
        self.refused.append(now)
        self.longest_wait = max(self.longest_wait, round(retry_after * SECOND))


def by_reference(times: list[int], limits: list[Limit]) -> list[Told]:
    """Charge limits as one decision at each of these microseconds; return all, then each limit."""
    store = MemoryStore(lambda: 0)
    told = [Told() for _ in range(len(limits) + 1)]
    for now in times:
        decision = store.take([Charge(limit, str(n)) for n, limit in enumerate(limits)], now=now)
        if not decision:
            told[0].refuse(now, decision.retry_after)
        for n, outcome in enumerate(decision.outcomes, 1):
            if not outcome.allowed:
                told[n].refuse(now, outcome.retry_after)
    return told


limits = st.builds(
    Limit,
    st.integers(1, 12),
    st.fractions(Fraction(1, 50), 6, max_denominator=60),
    st.sampled_from([1, 2, 60, Fraction(1, 10)]),
)
#: Whole seconds, as most logs have them, and microseconds.
moments = st.integers(0, 40).map(lambda second: second * SECOND) | st.integers(0, 40 * SECOND)
visits = st.lists(moments, min_size=1, max_size=60).map(sorted)


@given(limits, visits)
def test_the_short_arithmetic_is_the_reference_bucket(limit: Limit, times: list[int]) -> None:
    told, _ = by_reference(times, [limit])
    traffic = Traffic(times={"alice": array("q", times)})
    judged = judge(traffic, limit)
    assert list(refused_times(array("q", times), limit)[0]) == told.refused
    assert judged.longest_wait == told.longest_wait


@given(st.lists(limits, min_size=1, max_size=3), st.lists(visits, min_size=1, max_size=2))
def test_limits_together_are_one_decision_of_the_reference_store(
    limits: list[Limit], times: list[list[int]]
) -> None:
    traffic = Traffic(times={str(n): array("q", some) for n, some in enumerate(times)})
    expected = [by_reference(some, limits) for some in times]
    for n, judged in enumerate(judge_together(traffic, limits)):
        assert judged.refused == sum(len(told[n].refused) for told in expected)
        assert judged.longest_wait == max(told[n].longest_wait for told in expected)


@given(limits, visits)
def test_a_peak_is_the_smallest_burst_that_refuses_nothing(limit: Limit, times: list[int]) -> None:
    needed = peak(array("q", times), limit)

    def refusals(capacity: int) -> int:
        other = Limit(capacity, limit.refill_rate, limit.per)
        return len(refused_times(array("q", times), other)[0])

    assert refusals(needed) == 0
    assert needed == 1 or refusals(needed - 1) > 0


@given(limits, st.lists(visits, min_size=1, max_size=4), st.fractions(0, Fraction(99, 100)))
def test_a_suggestion_is_the_smallest_burst_that_refuses_no_more(
    limit: Limit, times: list[list[int]], share: Fraction
) -> None:
    traffic = Traffic(times={str(n): array("q", some) for n, some in enumerate(times)})

    def share_refused(capacity: int) -> Fraction:
        return judge(traffic, Limit(capacity, limit.refill_rate, limit.per)).share

    found = suggested(traffic, limit, share).capacity
    assert share_refused(found) <= share
    assert found >= least_burst(limit)
    assert all(share_refused(capacity) > share for capacity in range(least_burst(limit), found))


def test_the_doctor_is_content_with_a_suggestion(
    run: Run, write_log: Callable[..., Path], tmp_path: Path
) -> None:
    log = write_log(line(), line(time="17/May/2015:11:05:03 +0000"))
    said = run("simulate", log, "--limit", "5/second burst 6", "--suggest", "0%", "--json").data
    suggestion = said["limits"][0]["suggestion"]["limit"]
    assert suggestion == "5/second burst 10"
    assert "FB303" in doctors_codes("5/second burst 6")
    assert "FB303" not in doctors_codes(suggestion)


def doctors_codes(limit: str) -> set[str]:
    app = Flask(__name__)
    Limiter(app, default_limits=limit)
    app.add_url_rule("/", "index", lambda: "")
    return {finding["code"] for finding in run_in(app)("doctor", "--json").data["findings"]}


def test_a_large_tick_is_counted_right() -> None:
    limit = Limit.parse("10007 per 30 days burst 1000000000")
    assert limit.tick > 1
    times = [n * 3 * SECOND + n for n in range(170)]
    told, _ = by_reference(times, [limit])
    assert list(refused_times(array("q", times), limit)[0]) == told.refused


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
        (gzip.compress(b""), "it is empty"),
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


def test_a_million_lines_fit_in_bounded_memory(tmp_path: Path) -> None:
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

    grown = peak_of(1_000_000) - peak_of(100_000)
    assert grown < 900_000 * 40
