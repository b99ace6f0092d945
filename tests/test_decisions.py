"""Charges, outcomes and decisions: what is refused, what binds, and how it is rounded."""

from __future__ import annotations

from fractions import Fraction

import pytest

from flask_bucket.decisions import Charge, Decision, Outcome, no_negative_cost
from flask_bucket.errors import ConfigError
from flask_bucket.limits import EXACT, Limit

LIMIT = Limit(capacity=10, refill_rate=2)
NOW = 1_700_000_000_000_000


def outcome(
    allowed: bool = True,
    remaining: int = 5,
    retry_after: float | None = 0.0,
    reset_after: float = 1.0,
    shadow: bool = False,
) -> Outcome:
    return Outcome(LIMIT, "key", 1, allowed, remaining, retry_after, reset_after, shadow)


def rounded(tokens: int, wait: int | None = 0, full_in: int = 0) -> Outcome:
    return Outcome.of(Charge(LIMIT, "key"), False, tokens, wait, full_in)


@pytest.mark.parametrize("cost", [1.0, "1", None, True, Fraction(1), EXACT, -EXACT])
def test_a_cost_that_is_not_a_whole_number_is_refused_with_advice(cost: object) -> None:
    with pytest.raises(ConfigError, match="A cost is a whole number of tokens") as refused:
        Charge(LIMIT, "key", cost)  # type: ignore[arg-type]
    assert repr(cost) in str(refused.value)
    assert "Round it" in str(refused.value)


@pytest.mark.parametrize("cost", [0, 1, EXACT - 1, -1, 1 - EXACT])
def test_a_cost_is_any_int_that_is_counted_exactly(cost: int) -> None:
    assert Charge(LIMIT, "key", cost).cost == cost


def test_taking_a_negative_cost_is_refused_with_advice() -> None:
    no_negative_cost([Charge(LIMIT, "key", 0)])
    with pytest.raises(ConfigError, match=r"at least 0, not -1.*settle\(\)"):
        no_negative_cost([Charge(LIMIT, "key"), Charge(LIMIT, "key", -1)])


def test_a_charge_that_is_given_back_differs_in_nothing_but_its_cost() -> None:
    charge = Charge(LIMIT, "key", 3, returns=True)
    back = charge.given_back()
    assert back == Charge(LIMIT, "key", -3, returns=True)
    assert back.given_back() == charge


@pytest.mark.parametrize(
    ("tokens", "remaining"),
    [(0, 0), (-1, 0), (-(10**9), 0), (LIMIT.scale - 1, 0), (LIMIT.scale, 1), (LIMIT.full, 10)],
)
def test_remaining_is_rounded_down_and_never_below_zero(tokens: int, remaining: int) -> None:
    assert rounded(tokens).remaining == remaining


def test_times_are_seconds() -> None:
    one = rounded(0, wait=500_001, full_in=5_000_000)
    assert (one.retry_after, one.reset_after) == (0.500001, 5.0)


def test_an_outcome_without_a_wait_is_allowed() -> None:
    assert rounded(0, wait=0).allowed
    assert not rounded(0, wait=1).allowed
    assert not rounded(0, wait=None).allowed
    assert rounded(0, wait=None).retry_after is None


def test_a_decision_is_as_true_as_it_is_allowed() -> None:
    assert Decision.of((outcome(),), NOW)
    assert not Decision.of((outcome(False, retry_after=1.0),), NOW)
    assert Decision(True)


def test_one_refusal_refuses_all() -> None:
    decision = Decision.of((outcome(), outcome(False, retry_after=2.0)), NOW)
    assert (decision.allowed, decision.retry_after, decision.now) == (False, 2.0, NOW)


def test_a_decision_about_nothing_is_allowed_and_nothing_binds() -> None:
    decision = Decision.of((), NOW)
    assert decision.allowed
    assert decision.binding is None
    assert decision.retry_after == 0.0


def test_the_refusal_with_the_longest_wait_binds() -> None:
    short, long = outcome(False, retry_after=1.0), outcome(False, 0, retry_after=2.0)
    decision = Decision.of((short, long, outcome(remaining=0)), NOW)
    assert decision.binding is long
    assert decision.retry_after == 2.0


def test_a_refusal_for_ever_outlasts_every_wait() -> None:
    never = outcome(False, retry_after=None)
    decision = Decision.of((outcome(False, retry_after=1e9), never), NOW)
    assert decision.binding is never
    assert decision.retry_after is None


def test_the_outcome_with_the_fewest_remaining_binds_if_all_are_allowed() -> None:
    fewest = outcome(remaining=1)
    assert Decision.of((outcome(remaining=2), fewest), NOW).binding is fewest


def test_of_outcomes_with_equal_remaining_the_slowest_to_fill_binds() -> None:
    slow = outcome(remaining=1, reset_after=60.0)
    assert Decision.of((outcome(remaining=1), slow), NOW).binding is slow


def test_a_shadow_limit_neither_refuses_nor_binds() -> None:
    shadow = outcome(False, 0, retry_after=9.0, shadow=True)
    decision = Decision.of((outcome(), shadow), NOW)
    assert decision.allowed
    assert decision.binding is decision.outcomes[0]
    assert Decision.of((shadow,), NOW).binding is None
