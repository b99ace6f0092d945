"""A limit, its clients, and what is left for them."""

from __future__ import annotations

from flask_bucket.decisions import Charge
from flask_bucket.limits import Limit
from flask_bucket.stores.base import Store
from tests.conftest import START

SECOND = 1_000_000
LIMIT = Limit(capacity=10, refill_rate=2)
ALICE, ALSO_ALICE = "bucket:{alice}:search:per-second", "bucket:{alice}:login:per-second"
BOB = "bucket:{bob}:search:per-second"


def charge(cost: int = 1, key: str = ALICE, limit: Limit = LIMIT) -> Charge:
    return Charge(limit, key, cost)


def left(store: Store, key: str = ALICE, now: int = START, limit: Limit = LIMIT) -> int:
    return store.peek([charge(0, key, limit)], now).outcomes[0].remaining
