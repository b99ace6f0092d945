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
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flask_bucket import Charge, Limit
from flask_bucket import bucket as reference
from flask_bucket.cli.logs import Traffic
from flask_bucket.cli.replay import judge, peak, refused_times, suggested
from flask_bucket.limits import SECOND
from tests.cli.conftest import Run, line

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
        came.append((datetime.strptime(stamp, "%d/%b/%Y:%H:%M:%S %z"), text.split()[0]))
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
def test_a_real_log_is_judged_as_exact_rationals_judge_it(
    text: str, access_log: Path, run: Run
) -> None:
    expected = replayed(access_log, Limit.parse(text))
    data = run("simulate", access_log, "--limit", text, "--worst", 10_000, "--json").data
    assert (data["requests"], data["clients"], data["malformed"]) == (9999, 1739, 0)
    (judged,) = data["limits"]
    assert {w["client"]: w["refused"] for w in judged["worst"]} == dict(expected)
    assert judged["refused"] == expected.total()
    assert judged["refused_clients"] == len(expected)


def by_reference(times: list[int], limit: Limit) -> tuple[list[int], int]:
    """Return the refusals and the longest wait in microseconds, as the reference bucket says."""
    states: dict[str, reference.State] = {}
    charge = Charge(limit, "key")
    refused, longest = [], 0
    for second in times:
        now = second * SECOND
        decision, writes = reference.take(states, [charge], now)
        if not decision.allowed:
            refused.append(second)
            assert decision.retry_after is not None
            longest = max(longest, round(decision.retry_after * SECOND))
        states.update(writes)
    return refused, longest


limits = st.builds(
    Limit,
    st.integers(1, 12),
    st.fractions(Fraction(1, 50), 6, max_denominator=60),
    st.sampled_from([1, 2, 60, Fraction(1, 10)]),
)
visits = st.lists(st.integers(0, 40), min_size=1, max_size=60).map(sorted)


@given(limits, visits)
def test_the_short_arithmetic_is_the_reference_bucket(limit: Limit, times: list[int]) -> None:
    refused, longest = by_reference(times, limit)
    traffic = Traffic(times={"alice": array("q", times)})
    judged = judge(traffic, limit)
    assert list(refused_times(array("q", times), limit)[0]) == refused
    assert judged.longest_wait == longest


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
    assert all(share_refused(capacity) > share for capacity in range(1, found))


def test_a_large_tick_is_counted_right() -> None:
    limit = Limit.parse("10007 per 30 days burst 1000000000")
    assert limit.tick > 1
    times = list(range(0, 500, 3))
    assert list(refused_times(array("q", times), limit)[0]) == by_reference(times, limit)[0]


def test_the_report_for_programs_has_exactly_this_shape(
    run: Run, write_log: Callable[..., Path]
) -> None:
    log = write_log(*[line()] * 7, line("192.0.2.1"), "malformed")
    assert run("simulate", log, "--limit", "5/second", "--limit", "1/day", "--json").data == {
        "requests": 8,
        "clients": 2,
        "malformed": 1,
        "limits": [
            {
                "limit": "5/second",
                "refused": 2,
                "refused_clients": 1,
                "worst": [{"client": "203.0.113.7", "refused": 2}],
            },
            {
                "limit": "1/day",
                "refused": 6,
                "refused_clients": 1,
                "worst": [{"client": "203.0.113.7", "refused": 6}],
            },
        ],
    }


def test_people_read_all_that_matters(run: Run, write_log: Callable[..., Path]) -> None:
    log = write_log(*[line()] * 7, line("192.0.2.1"), "malformed")
    said = run("simulate", log, "--limit", "5/minute")
    assert said.out == (
        "8 requests from 2 clients; 1 malformed line left out.\n\n"
        "LIMIT     REFUSED   SHARE  CLIENTS AFFECTED  LONGEST WAIT\n"
        "5/minute        2  25.00%        1 (50.00%)          12 s\n\n"
        "Most refused by 5/minute:\n"
        "CLIENT       REFUSED  REQUESTS\n"
        "203.0.113.7        2         7\n"
    )
    assert (said.code, said.err) == (0, "")


def test_a_suggestion_stands_beside_its_limit(run: Run, access_log: Path) -> None:
    said = run("simulate", access_log, "--limit", "30/minute", "--suggest", "0.1%", "--json").data
    (judged,) = said["limits"]
    suggestion = judged["suggestion"]
    assert suggestion["refused"] <= 9 < judged["refused"]
    burst = Limit.parse(suggestion["limit"]).capacity
    smaller = f"30/minute burst {burst - 1}"
    assert (
        run("simulate", access_log, "--limit", smaller, "--json").data["limits"][0]["refused"] > 9
    )


def test_the_worst_clients_come_first_and_no_more_than_asked_for(
    run: Run, write_log: Callable[..., Path]
) -> None:
    log = write_log(*(line(f"192.0.2.{n}") for n in range(1, 9) for _ in range(n)))
    said = run("simulate", log, "--limit", "1/day", "--worst", 2, "--json").data
    assert said["limits"][0]["worst"] == [
        {"client": "192.0.2.8", "refused": 7},
        {"client": "192.0.2.7", "refused": 6},
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
        (["LOG", "--limit", "5/s", "--suggest", "100%"], "not a share"),
        (["LOG", "--limit", "5/s", "--suggest", "-1%"], "not a share"),
        (["LOG", "--limit", "5/s", "--by", "cookie"], "cookie"),
        (["LOG", "--limit", "5/s", "--ipv6-prefix", "0"], "0"),
        (["LOG", "--limit", "5/s", "--frobnicate"], "frobnicate"),
        (["LOG", "--limit", "5/s", "--worst"], "--worst"),
        (["LOG", "--limit", "5/s", "--plot", "picture.txt"], "picture"),
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
        (bytes(range(1, 256)) * 99, "neither the common nor the combined"),
        (gzip.compress(b""), "it is empty"),
        (b"\x1f\x8b\x08\x00garbage", "damaged gzip"),
        (b"one\ntwo\n", "2 lines are in neither"),
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
    said = run("simulate", access_log, "--limit", "30/minute", "--plot", picture, "--suggest", 0)
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
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
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
        "from flask_bucket.cli.simulate import read\n"
        "from flask_bucket.cli.logs import Traffic\n"
        "traffic = read(sys.argv[1:], Traffic())\n"
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
