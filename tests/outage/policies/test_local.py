"""Tokens that a process counts by itself, under the policy local."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flask_bucket.decisions import Charge
from flask_bucket.errors import StoreUnavailable
from flask_bucket.limits import Limit
from flask_bucket.stores.outage import OutageStore
from tests.outage.policies.conftest import CHARGE, DAY, LIMIT, Clock, Fickle


def local_charges(store: OutageStore, cost: int, now: int | None = None) -> list[Charge]:
    """Take tokens from the process's own bucket, and return the charge as it was taken."""
    charge = Charge(LIMIT, CHARGE.key, cost)
    (outcome,) = store.take([charge], now=now).outcomes
    assert outcome.taken_from == "local"
    return [charge.taken_as(outcome)]


def test_tokens_of_the_process_are_given_back_to_it_during_an_outage(fickle: Fickle) -> None:
    store = OutageStore(fickle, "local")
    fickle.error = StoreUnavailable("gone")
    held = local_charges(store, 10)
    never = Charge(LIMIT, "bucket:{alice}:other:per-day", 11)
    assert not store.take([never], held=held)
    assert store.take([Charge(LIMIT, CHARGE.key, 10)])


def test_tokens_of_the_process_are_given_back_to_it_after_an_outage(
    fickle: Fickle, clock: Clock
) -> None:
    store = OutageStore(fickle, "local", clock=clock)
    other = Charge(LIMIT, "bucket:{alice}:other:per-day", 10)

    def remaining(error: Exception | None) -> int:
        fickle.error, clock.now = error, clock.now + 1
        return store.take([Charge(LIMIT, CHARGE.key, 0)], now=DAY).outcomes[0].remaining

    fickle.error = StoreUnavailable("gone")
    held = local_charges(store, 10, now=DAY)
    store.settle([replace(held[0], cost=5)], now=DAY)  # a debt of 5
    assert remaining(None) == 10  # in the store, which was not asked
    assert store.take([other], held=held, now=DAY)
    assert remaining(StoreUnavailable("gone")) == 0  # a request that is allowed keeps its tokens
    assert remaining(None) == 10
    assert not store.take([other], held=held, now=DAY)
    assert remaining(None) == 10
    assert remaining(StoreUnavailable("gone")) == 5


def test_a_settlement_of_tokens_of_the_process_concerns_no_store(
    fickle: Fickle, clock: Clock
) -> None:
    store = OutageStore(fickle, "local", clock=clock)
    fickle.error = StoreUnavailable("gone")
    (taken,) = local_charges(store, 10, now=DAY)
    fickle.error, clock.now = None, clock.now + 1
    other = Charge(LIMIT, "bucket:{alice}:other:per-day", 3)
    store.settle([taken.given_back(), other], now=DAY)
    assert [[c.key for c in charges] for charges in fickle.settle_calls] == [[other.key]]
    fickle.error = StoreUnavailable("gone again")
    assert store.take([Charge(LIMIT, CHARGE.key, 10)], now=DAY)
    store.settle([replace(taken, cost=-1)], now=DAY + DAY // 2)
    (outcome,) = store.peek([CHARGE], now=DAY + DAY // 2).outcomes
    assert outcome.remaining == 5  # 5 + 1, less 1 that is looked for


def test_the_local_policy_counts_dry_run_limits(fickle: Fickle, clock: Clock) -> None:
    store = OutageStore(fickle, "local", clock=clock)
    fickle.error = StoreUnavailable("gone")
    once = Charge(Limit.parse("1/day"), CHARGE.key)
    decisions = [store.take([], shadow=[once]) for _ in range(2)]
    assert [decision.allowed for decision in decisions] == [True, True]
    assert [decision.outcomes[0].allowed for decision in decisions] == [True, False]
    assert all(decision.outcomes[0].shadow for decision in decisions)


def ban() -> Charge:
    return Charge(Limit.parse("2/day"), "bucket:{alice}:@limiter:!ban", 0, kind="ban", lasts=DAY)


@pytest.mark.parametrize("place", ["charges", "held", "shadow"])
def test_the_local_policy_counts_for_bans_in_full(fickle: Fickle, clock: Clock, place: str) -> None:
    """Each worker sees its own refusals, and bans after as many as the ban says."""
    store = OutageStore(fickle, "local", local_share=0.5, clock=clock)
    fickle.error = StoreUnavailable("dead")
    refused = replace(CHARGE, cost=11, counts_for=(ban().key,))
    bans = {place: [ban()]}
    for begins in (False, True):
        dry = [refused] if place == "shadow" else []
        asked = [*bans.get("charges", []), *([] if dry else [refused])]
        shadow = [*dry, *bans.get("shadow", [])]
        decision = store.take(asked, bans.get("held", []), shadow, now=DAY)
        (told,) = [outcome for outcome in decision.outcomes if outcome.kind == "ban"]
        assert (told.taken, told.allowed, told.taken_from) == (1, not begins, "local")
        assert told.retry_after == (86_400 if begins else 0)


def test_the_local_policy_takes_nothing_ahead(fickle: Fickle) -> None:
    store = OutageStore(fickle, "local")
    fickle.error = StoreUnavailable("gone")
    (outcome,) = store.take([Charge(LIMIT, CHARGE.key, up_to=5)]).outcomes
    assert (outcome.taken, outcome.remaining) == (1, 9)
