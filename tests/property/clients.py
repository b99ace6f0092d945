"""Shared by the tests of promises: what a client asks and hears, in microseconds."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import assume
from hypothesis import strategies as st

from flask_bucket.decisions import Charge, Outcome
from flask_bucket.limits import EXACT, Limit
from tests.conftest import START
from tests.property.engines import Subject
from tests.property.oracle import Answer, Oracle
from tests.property.worlds import FORWARD

KEY, OTHER = "bucket:{a}:one:x", "bucket:{a}:two:x"

costs = st.one_of(st.integers(0, 3), st.integers(0, 30))
#: A request: how far time moves before it, and what it costs.
requests = st.lists(st.tuples(FORWARD, costs), min_size=1, max_size=20)


def oracle_of(limit: Limit, at: int = START) -> Oracle:
    return Oracle.refilled(limit.capacity, limit.refill_rate, limit.per, at)


def rate(limit: Limit) -> Fraction:
    """Tokens each microsecond."""
    return limit.refill_rate / limit.per / 1_000_000


def microseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(Fraction(seconds) * 1_000_000)


def heard(outcome: Outcome) -> Answer:
    wait, full_in = microseconds(outcome.retry_after), microseconds(outcome.reset_after)
    assert full_in is not None
    return Answer(outcome.allowed, outcome.remaining, wait, full_in)


def take(subject: Subject, limit: Limit, cost: int, now: int) -> Outcome:
    assume(now < EXACT)  # with a slow limit, a long history may reach the year 2255
    return subject.store.take([Charge(limit, KEY, cost)], now=now).outcomes[0]


def level(subject: Subject) -> Fraction:
    """The balance as it was last written, in tokens."""
    state = subject.kept([KEY])[KEY]
    return Fraction(state.tokens, state.scale)


def drained(subject: Subject, limit: Limit, now: int) -> None:
    subject.forget()
    subject.store.settle([Charge(limit, KEY, limit.capacity)], now=now)
