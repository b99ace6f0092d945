"""The replay of logs through limits: equal to the reference bucket, and to exact rationals."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from pathlib import Path

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
