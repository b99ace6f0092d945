"""Calls as users write them. mypy checks this file, and so the public types; nothing runs it.

Each ``type: ignore`` marks a mistake that mypy must find: it reports those that mark none.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import assert_type
from uuid import UUID, uuid4

import redis
from flask import Blueprint, Flask, Response, request
from flask.views import MethodView

from flask_bucket import (
    AtOnce,
    Ban,
    Charge,
    Decision,
    Limit,
    Limiter,
    MemoryStore,
    Outcome,
    RateLimitExceeded,
    RedisStore,
    Rule,
    client_address,
    request_header,
)
from flask_bucket.stores.base import Store
from flask_bucket.testing import ManualClock, limits_off, use_clock, use_store

app = Flask(__name__)

# Limits and rules.

Limit("5/second burst 20")
Limit("5/second", name="search")
Limit(20, 5)
Limit(capacity=20, refill_rate=Fraction(1, 3), per=Decimal("0.5"), name="search")
assert_type(Limit.parse("5/second"), Limit)
assert_type(Limit.parse_many("5/second; 100/hour"), tuple[Limit, ...])
AtOnce(5)
AtOnce(5, holds=30, name="exports")
Limit(20)  # type: ignore[call-overload]
Limit("5/second", 5)  # type: ignore[call-overload]
AtOnce("5 at once")  # type: ignore[arg-type]
Limit.parse(5)  # type: ignore[arg-type]


def size() -> int:
    return request.content_length or 0


async def plan() -> str:
    return "10/second"


def user_id() -> UUID | None:
    return uuid4() if "user" in request.args else None


PLAN = Rule("5/second burst 20", cost=size, exempt_when=lambda: request.method == "PUT")
Rule(capacity=10, refill_rate=2, methods=["POST"], per_method=True)
Rule(plan, key_func=user_id, dry_run=True)
Rule("5/second", "10/second")  # type: ignore[call-arg,arg-type]
Rule("5/second", cost="2")  # type: ignore[arg-type]

# Limiters.

limiter = Limiter(
    app,
    key_func=request_header("X-API-Key"),
    default_limits=["200/day", Limit("50/hour"), PLAN],
    application_limits=Rule("5000/second", key_func=lambda: "all"),
    redis="redis://localhost:6379/0",
    on_breach=lambda decision: (f"wait {decision.retry_after} s", 429),
    name="api",
)
Limiter()
Limiter(app, default_limits="5/second", redis=redis.Redis())
Limiter(app, application_limits=lambda: None, redis=MemoryStore())
limiter.init_app(app)
Limiter(client_address)  # type: ignore[arg-type]
Limiter(app, client_address)  # type: ignore[call-arg]
Limiter(app, storage_uri="redis://")  # type: ignore[call-arg]

# Views.


@app.get("/search")
@limiter.limit("5/second", burst=20)
def search() -> str:
    return "found"


@app.get("/later")
@limiter.limit("10/second; 3 at once", holds=30)
@limiter.limit([AtOnce(5), "5/second"])
@limiter.limit(lambda: AtOnce(5))
@limiter.limit(lambda: ["5/second", Limit(20, 5)], methods={"GET"}, error_message="slower")
async def later() -> str:
    return "found"


@app.post("/login")
@limiter.limit(
    [PLAN, "100/hour"],
    deduct_when=lambda response: response.status_code == 401,
    on_breach=lambda decision: Response(status=429),
    override_defaults=False,
)
def log_in() -> str:
    limiter.reset_current()
    limiter.settle(3)
    with limiter.limit("1/minute", scope="import"):
        pass
    assert_type(limiter.current, Decision | None)
    return "welcome"


assert_type(search(), str)
limiter.limit("5/second", client_address)  # type: ignore[call-arg,arg-type]
limiter.limit("5/second", cost="two")  # type: ignore[arg-type]
limiter.limit("5/second", methods=5)  # type: ignore[arg-type]
limiter.limit(limit_value="5/second")  # type: ignore[call-arg]
limiter.storage  # type: ignore[attr-defined]  # noqa: B018


class Items(MethodView):
    decorators = [limiter.limit("5/second")]  # noqa: RUF012

    @limiter.shared_limit("10/minute", scope=lambda endpoint: endpoint)
    def get(self) -> str:
        return "items"


blueprint = Blueprint("shop", __name__)
assert_type(limiter.limit("100/minute")(blueprint), Blueprint)
assert_type(limiter.exempt(blueprint), Blueprint)


@limiter.exempt(application=False)
def health() -> str:
    return limiter.health().state


@limiter.request_filter
def from_inside() -> bool:
    return request.headers.get("X-Inside") == "yes"


@app.errorhandler(RateLimitExceeded)
def slow_down(error: RateLimitExceeded) -> tuple[dict[str, object], int]:
    assert_type(error.decision, Decision)
    return {"limit": str(error.limit), "wait": error.retry_after}, 429


# Bans.

Limiter(app, name="a", bans="20/hour for 1 day")
Limiter(app, name="b", bans=["20/hour for 1 day", Ban("5/minute", 90, name="short")])
Limiter(app, name="c", bans=Ban(Limit(20, 1), timedelta(days=1), key_func=lambda: "all"))
limiter.limit("5/minute", ban=Ban("3/hour", "1 day", key_func=client_address))
limiter.limit("5/minute", ban="3/hour for 1 day")
limiter.limit("5/minute", ban=20)  # type: ignore[arg-type]
assert_type(Rule("5/minute", ban="3/hour for 1 day").ban, Ban | str | None)

# By hand.

decision = limiter.consume("5/second; 100/hour", 7, cost=2, scope="export")
assert_type(decision, Decision)
assert_type(decision.allowed, bool)
assert_type(decision.binding, Outcome | None)
assert_type(decision.limit, Limit | None)
assert_type(decision.remaining, int | None)
assert_type(decision.retry_after, float | None)
assert_type(limiter.peek(Limit(20, 5), uuid4()), Decision)
assert_type(limiter.reset("alice") + limiter.reset(), int)
limiter.consume("5/second", None)  # type: ignore[arg-type]
limiter.reset(None)  # type: ignore[arg-type]

# Stores and tests.

stores: list[Store] = [
    MemoryStore(),
    MemoryStore(clock=ManualClock()),
    RedisStore(redis.Redis(), key_prefix="shop"),
    RedisStore.from_url("redis://localhost", timeout=0.5, ssl_ca_certs="ca.pem"),
]
for store in stores:
    assert_type(store.take([Charge(Limit(20, 5), "bucket:{alice}:search:per-second")]), Decision)
    assert_type(store.reset("alice") + store.reset(None, "bucket"), int)
    use_store(app, store)
assert_type(use_clock(app), ManualClock)
with limits_off(app, limiter):
    pass
