"""Limits, times and costs to draw from: few enough to meet again, odd enough to hurt."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from hypothesis import strategies as st

from flask_bucket.errors import ConfigError
from flask_bucket.limits import EXACT, Limit

MS, SECOND, DAY = 1_000, 1_000_000, 86_400_000_000
TEN_YEARS = 3_652 * DAY

#: Each is awkward for a reason of its own.
AWKWARD = (
    Limit(capacity=20, refill_rate=5),
    Limit(capacity=10, refill_rate=1.9),  # a step of 19, and parts that never divide evenly
    Limit(capacity=7, refill_rate=7, per=3),
    Limit(capacity=10_007, refill_rate=10_007, per=30 * 86_400),  # a prime; counts in ms
    Limit(capacity=1, refill_rate=2_000),  # full again within half a millisecond
    Limit(capacity=1, refill_rate=1, per=60),
    Limit(capacity=3, refill_rate=3_000_000),  # more than a token each tick
    Limit(capacity=100, refill_rate=1, per=365 * 86_400),  # the largest parts
    Limit(capacity=1_000_000, refill_rate=1, per=365 * 86_400),  # counts in seconds
    Limit(capacity=2, refill_rate=Fraction(1, 3)),
    Limit(capacity=9_007_199_254, refill_rate=1_000_003),  # next to the bound of exactness
)


def _made(capacity: int, rate: Fraction, per: Fraction) -> Limit | None:
    try:
        return Limit(capacity, rate, per)
    except ConfigError:
        return None


def limits() -> st.SearchStrategy[Limit]:
    drawn: st.SearchStrategy[Limit | None] = st.builds(
        _made,
        st.one_of(st.integers(1, 5), st.integers(1, 10**6)),
        st.fractions(Fraction(1, 1_000), 10_000, max_denominator=1_000),
        st.fractions(Fraction(1, 100), 10**6, max_denominator=100),
    )
    some = drawn.filter(lambda limit: limit is not None).map(lambda limit: limit or AWKWARD[0])
    return st.one_of(st.sampled_from(AWKWARD), some)


#: How far time moves before a call, in microseconds.
FORWARD = st.one_of(
    st.sampled_from(
        (0, 0, 1, 499, 500, MS - 1, MS, SECOND - 1, SECOND, SECOND + 1, 60 * SECOND, TEN_YEARS)
    ),
    st.integers(0, 10 * SECOND),
    st.integers(0, 40 * DAY),
)
BACKWARD = st.one_of(
    st.sampled_from((1, 499, SECOND - 1, SECOND, SECOND + 1, 60 * SECOND, TEN_YEARS)),
    st.integers(1, SECOND),
    st.integers(SECOND, 40 * DAY),
).map(lambda us: -us)


@dataclass(frozen=True)
class Wait:
    """Time moves to the end of the last refusal's wait, give or take a microsecond."""

    off_by: int


MOVES = st.one_of(FORWARD, FORWARD, BACKWARD, st.sampled_from((-1, 0, 0, 1)).map(Wait), st.just(0))


def moved(now: int, by: int) -> int:
    """Return the time after a move, within what the arithmetic counts in."""
    return min(max(now + by, 0), EXACT - 1)


@dataclass(frozen=True)
class Near:
    """A cost close to what a bucket has left, or to its capacity."""

    what: str
    off_by: int

    def cost(self, limit: Limit, remaining: int) -> int:
        base = remaining if self.what == "remaining" else limit.capacity
        return max(0, base + self.off_by)


NEAR = st.builds(Near, st.sampled_from(("remaining", "capacity")), st.integers(-1, 1))
COSTS = st.one_of(st.sampled_from((0, 1, 1, 2)), NEAR, NEAR, st.integers(0, 50), st.just(EXACT - 1))
#: Amounts to settle: mostly small, sometimes too large to be counted exactly.
AMOUNTS = st.one_of(
    st.integers(-5, 5), NEAR, st.integers(-(10**7), 10**7), st.integers(-EXACT + 1, EXACT - 1)
)

#: A limit that is soon used up and slow to recover, so that bans begin and slots run out.
FEW = Limit(capacity=2, refill_rate=1, per=3_600)
#: How long bans last and slots are held, in microseconds.
LASTS = st.one_of(
    st.sampled_from((1, MS, SECOND, SECOND + 1, 60 * SECOND, DAY, TEN_YEARS)),
    st.integers(1, 100 * SECOND),
    st.just(EXACT - 1),
)
