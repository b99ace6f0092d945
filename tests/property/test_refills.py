"""The promises about refills, and about how long a bucket is kept."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from flask_bucket.decisions import Charge
from flask_bucket.limits import EXACT, Limit
from tests.conftest import START
from tests.property.clients import (
    KEY,
    drained,
    level,
    microseconds,
    oracle_of,
    rate,
    requests,
    take,
)
from tests.property.engines import Subject, milliseconds
from tests.property.profiles import examples
from tests.property.worlds import AWKWARD, FORWARD, SECOND, limits


@examples(100, 1_000)
@given(limit=limits(), history=requests)
def test_no_interval_grants_more_than_the_capacity_and_its_refill(
    subject: Subject, limit: Limit, history: list[tuple[int, int]]
) -> None:
    subject.forget()
    now, grants = START, []
    for by, cost in history:
        now += by
        if take(subject, limit, cost, now).allowed:
            grants.append((now, cost))
    for i, (since, _) in enumerate(grants):
        granted = 0
        for until, cost in grants[i:]:
            granted += cost
            assert granted <= limit.capacity + rate(limit) * (until - since)


@examples(100, 1_000)
@given(
    limit=st.one_of(st.sampled_from([x for x in AWKWARD if x.tick > 1]), limits()), history=requests
)
def test_no_call_loses_any_of_the_refill(
    subject: Subject, limit: Limit, history: list[tuple[int, int]]
) -> None:
    """However often and oddly the calls are timed, they lose less than one tick's refill."""
    drained(subject, limit, START)
    now, oracle = START, oracle_of(limit)
    oracle.level = Fraction(0)
    for by, cost in history:
        now += by
        oracle.move(now)
        answer = take(subject, limit, cost, now)
        if answer.allowed:
            oracle.give(-cost)
        assert answer.remaining + 1 > oracle.level - rate(limit) * limit.tick


def test_the_remainder_of_a_tick_counts_towards_the_next_one(subject: Subject) -> None:
    limit = AWKWARD[3]
    assert limit.tick == 1_000
    drained(subject, limit, START)
    subject.store.settle([Charge(limit, KEY, -100)], now=START)
    for n in range(1, 6):
        assert subject.store.take([Charge(limit, KEY)], now=START + n * 999).allowed
    assert subject.kept([KEY])[KEY].last_refill == START + 4_000
    assert level(subject) == 95 + 4 * rate(limit) * 1_000


@examples(20, 200)
@given(limit=limits())
@example(limit=AWKWARD[3])
def test_a_saturating_client_gets_the_whole_refill_but_one_token(
    subject: Subject, limit: Limit
) -> None:
    """The capacity must be at least a token plus a tick's refill. Else see the next test."""
    per_tick = rate(limit) * limit.tick
    assume(limit.capacity >= 1 + per_tick)
    drained(subject, limit, START)
    now, granted = START, 0
    for _ in range(60):
        answer = take(subject, limit, 1, now)
        granted += answer.allowed
        now += microseconds(answer.retry_after) or 0
    # Now is the last instant at which it was refused, or the end of its last wait.
    assert granted >= rate(limit) * (now - START) - 1 - per_tick


@examples(20, 200)
@given(limit=limits())
@example(limit=AWKWARD[4])
@example(limit=Limit(1, 7, 3))
def test_a_bucket_too_small_for_a_tick_loses_no_more_than_a_tick_for_each_grant(
    subject: Subject, limit: Limit
) -> None:
    per_tick = rate(limit) * limit.tick
    drained(subject, limit, START)
    now, granted = START, 0
    for _ in range(60):
        answer = take(subject, limit, 1, now)
        granted += answer.allowed
        # If the bucket always has tokens, it asks at every tick.
        now += microseconds(answer.retry_after) or (limit.tick if answer.remaining == 0 else 0)
    assert granted * (1 + per_tick) >= rate(limit) * (now - START) - 1 - per_tick


@pytest.mark.parametrize("years", [10, 100])
def test_idle_years_give_exactly_the_capacity(subject: Subject, years: int) -> None:
    for limit in AWKWARD:
        drained(subject, limit, START)
        now = START + years * 365 * 86_400 * SECOND
        if limit.capacity / rate(limit) <= now - START:
            assert subject.store.peek([Charge(limit, KEY, limit.capacity)], now).allowed


@examples(50, 500)
@given(limit=limits(), taken=st.integers(1, 60), by=FORWARD)
def test_a_bucket_is_kept_until_it_is_full_and_about_a_minute_longer(
    subject: Subject, limit: Limit, taken: int, by: int
) -> None:
    # A larger debt would be cut to one that is counted exactly.
    assume((limit.capacity - 1 - taken) * limit.scale > limit.full - EXACT)
    subject.forget()
    take(subject, limit, 1, START)
    oracle = oracle_of(limit)
    oracle.move(START + by)
    before = milliseconds()
    subject.store.settle([Charge(limit, KEY, taken)], now=START + by)
    ttl = subject.kept_for([KEY])[1][KEY]
    elapsed = milliseconds() - before + 5
    assert ttl is not None
    # The first take is not in the oracle: the time to full is at least this, at most with it.
    oracle.give(-taken)
    least = Fraction(oracle.until(limit.capacity) - 1, 1_000)
    oracle.level -= 1
    most = Fraction(oracle.until(limit.capacity) + 2 * limit.tick, 1_000) + 1
    margin = 60_000
    assert least + margin - elapsed <= ttl <= most + margin


def test_the_ttl_is_the_time_to_full_to_the_millisecond(subject: Subject) -> None:
    limit = Limit(capacity=10, refill_rate=1)
    subject.store.settle([Charge(limit, KEY, 5)], now=START)
    before = milliseconds()
    ttl = subject.kept_for([KEY])[1][KEY]
    assert ttl is not None
    assert 65_000 - (milliseconds() - before) - 500 <= ttl <= 65_000
