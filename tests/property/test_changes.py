"""The promises about limits that change and clocks that step."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from hypothesis import assume, example, given
from hypothesis import strategies as st

from flask_bucket.decisions import Charge
from flask_bucket.limits import EXACT, Limit
from tests.conftest import START
from tests.property.clients import (
    KEY,
    costs,
    drained,
    level,
    microseconds,
    oracle_of,
    rate,
    take,
)
from tests.property.engines import Subject
from tests.property.profiles import examples
from tests.property.worlds import AWKWARD, BACKWARD, FORWARD, SECOND, limits

#: A time before a bucket's is late if the gap is at most this. Otherwise the clock was set back.
TOLERANCE = SECOND


@examples(100, 1_000)
@given(
    old=limits(),
    new=limits(),
    left=st.fractions(-1, 1, max_denominator=60),
    by=FORWARD,
    later=st.one_of(st.just(0), FORWARD),
)
@example(old=AWKWARD[1], new=AWKWARD[2], left=Fraction(-1, 2), by=1, later=0)
def test_a_changed_limit_adds_no_token_and_takes_none_that_still_fits(
    subject: Subject, old: Limit, new: Limit, left: Fraction, by: int, later: int
) -> None:
    """It also forgives no part of a debt."""
    drained(subject, old, START)
    subject.store.settle([Charge(old, KEY, -int(left * old.capacity))], now=START)
    # Written at this time, the balance may be any number of parts.
    subject.store.settle([Charge(old, KEY, 1)], now=START + by)
    had, refilled = level(subject), subject.kept([KEY])[KEY].last_refill
    # A debt that the new limit cannot count is cut to the largest that it can.
    assume((had - 1) * new.scale > new.full - EXACT)
    now = START + by + later
    had += rate(new) * (now - refilled)
    subject.store.settle([Charge(new, KEY, 1)], now=now)
    has = level(subject) + 1
    assert has <= min(had, Fraction(new.capacity))
    # Rounding takes less than a part, and a tick that has not passed its refill.
    lost = Fraction(1, new.scale) + rate(new) * new.tick
    assert has > min(had, Fraction(new.capacity)) - lost


@examples(50, 500)
@given(old=limits(), new=limits(), by=FORWARD)
def test_a_changed_limit_gives_no_fresh_burst_and_locks_nobody_out(
    subject: Subject, old: Limit, new: Limit, by: int
) -> None:
    drained(subject, old, START)
    now = START + by
    answer = take(subject, new, new.capacity, now)
    assert answer.allowed <= (rate(new) * by >= new.capacity or rate(old) * by >= old.capacity)
    wait = microseconds(answer.retry_after)
    assert wait is not None
    assert wait <= ceil(new.capacity / rate(new)) + new.tick


@examples(50, 500)
@given(limit=limits(), left=st.integers(0, 5), cost=st.integers(1, 5), late=st.integers(1, 10**6))
@example(limit=AWKWARD[0], left=5, cost=2, late=TOLERANCE)
def test_a_late_timestamp_takes_what_there_is_and_refills_nothing_twice(
    subject: Subject, limit: Limit, left: int, cost: int, late: int
) -> None:
    left = min(left, limit.capacity)
    assume(left >= cost)
    drained(subject, limit, START)
    subject.store.settle([Charge(limit, KEY, -left)], now=START)
    assert take(subject, limit, cost, START - late).allowed
    state = subject.kept([KEY])[KEY]
    assert (level(subject), state.last_refill) == (Fraction(left - cost), START)


@examples(50, 500)
@given(limit=limits(), step=st.integers(-40 * 86_400 * SECOND, -SECOND - 1))
def test_a_refusal_keeps_that_the_clock_was_set_back(
    subject: Subject, limit: Limit, step: int
) -> None:
    """A refusal writes nothing else. Without this, the wait would start again each time."""
    drained(subject, limit, START)
    assert not take(subject, limit, 1, START + step).allowed
    assert subject.kept([KEY])[KEY].last_refill == START + step
    assert level(subject) == 0


@examples(100, 1_000)
@given(
    limit=limits(),
    history=st.lists(st.tuples(FORWARD, costs), max_size=6),
    step=st.one_of(FORWARD, BACKWARD, BACKWARD),
    cost=costs,
)
def test_a_clock_step_locks_nobody_out_for_longer_than_the_tolerance_and_the_usual_wait(
    subject: Subject, limit: Limit, history: list[tuple[int, int]], step: int, cost: int
) -> None:
    cost = max(1, min(cost, limit.capacity))
    drained(subject, limit, START)
    now = START
    for by, earlier in history:
        now += by
        take(subject, limit, earlier, now)
    had = level(subject)
    now = max(0, now + step)
    wait = microseconds(take(subject, limit, cost, now).retry_after)
    usual = max(0, ceil((cost - had) / rate(limit)))
    assert wait is not None
    assert wait <= TOLERANCE + usual + limit.tick


@examples(100, 1_000)
@given(
    limit=limits(),
    history=st.lists(st.tuples(st.one_of(FORWARD, BACKWARD), costs), min_size=1, max_size=20),
)
def test_a_clock_step_backwards_mints_nothing_and_one_forwards_a_capacity_at_most(
    subject: Subject, limit: Limit, history: list[tuple[int, int]]
) -> None:
    """Every movement forwards refills the oracle, up to its capacity; no other one does."""
    subject.forget()
    now, oracle = START, oracle_of(limit)
    for by, cost in history:
        now = max(0, now + by)
        oracle.move(now)
        if take(subject, limit, cost, now).allowed:
            oracle.level -= cost
            assert oracle.level >= 0


def test_without_a_time_the_server_s_clock_decides(subject: Subject) -> None:
    before = subject.clock()
    now = subject.store.take([Charge(AWKWARD[0], KEY)]).now
    assert before <= now <= subject.clock()
