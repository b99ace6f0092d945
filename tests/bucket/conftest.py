"""A limit, and charges of it."""

from __future__ import annotations

from flask_bucket.bucket import State
from flask_bucket.decisions import Charge
from flask_bucket.limits import Limit
from tests.conftest import START

SECOND = 1_000_000

#: Five tokens a second; 200,000 parts a token, one part each microsecond.
LIMIT = Limit(capacity=20, refill_rate=5)


def holding(tokens: float, limit: Limit = LIMIT, at: int = START) -> State:
    return State(round(tokens * limit.scale), at, limit.scale)


def charge(cost: int = 1, key: str = "a", limit: Limit = LIMIT) -> Charge:
    return Charge(limit, key, cost)


#: Three refusals an hour, and then out for a day.
THREE = Limit(3, 3, 3_600)
DAY = 86_400 * SECOND


def ban(lasts: int = DAY, key: str = "ban") -> Charge:
    return Charge(THREE, key, kind="ban", lasts=lasts)
