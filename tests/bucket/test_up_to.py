"""Charges that take more than their cost, and rests."""

from __future__ import annotations

from flask_bucket.bucket import settle, take, wait
from flask_bucket.decisions import Charge
from tests.bucket.conftest import LIMIT, SECOND, charge, holding
from tests.conftest import START


def test_a_charge_up_to_a_maximum_takes_what_there_is() -> None:
    for tokens, taken in ((1.5, 1), (3, 3), (19, 5)):
        decision, writes = take({"a": holding(tokens)}, [Charge(LIMIT, "a", 1, up_to=5)], START)
        assert (decision.outcomes[0].taken, writes) == (taken, {"a": holding(tokens - taken)})


def test_a_charge_up_to_a_maximum_needs_its_cost() -> None:
    refused, writes = take({"a": holding(1.9)}, [Charge(LIMIT, "a", 2, up_to=5)], START)
    assert (refused.allowed, refused.outcomes[0].taken, writes) == (False, 0, {})


def test_a_maximum_below_the_cost_changes_nothing() -> None:
    decision, _ = take({"a": holding(5)}, [Charge(LIMIT, "a", 2, up_to=1)], START)
    assert decision.outcomes[0].taken == 2


def test_the_other_charges_of_a_bucket_come_before_more_than_the_cost() -> None:
    first = Charge(LIMIT, "a", 1, up_to=20)
    decision, writes = take({"a": holding(5)}, [first, charge(2)], START, shadow=[charge(1)])
    assert [outcome.taken for outcome in decision.outcomes] == [2, 2, 1]
    assert writes == {"a": holding(0)}


def test_as_much_is_given_back_as_was_taken_up_to_a_maximum() -> None:
    charge = Charge(LIMIT, "a", 1, up_to=9)
    decision, writes = take({"a": holding(5)}, [charge], START)
    back = charge.taken_as(decision.outcomes[0]).given_back()
    assert settle(writes, [back], START) == {"a": holding(5)}


def test_a_rest_goes_back_before_anything_is_judged() -> None:
    decision, writes = take({"a": holding(1)}, [Charge(LIMIT, "a", 3, up_to=5, rest=7)], START)
    assert (decision.outcomes[0].taken, writes) == (5, {"a": holding(3)})


def test_a_rest_goes_back_even_if_the_request_is_refused() -> None:
    asked = [Charge(LIMIT, "a", 9, up_to=9, rest=7)]
    refused, writes = take({"a": holding(1)}, asked, START)
    assert (refused.allowed, writes) == (False, {"a": holding(8)})
    (outcome,) = refused.outcomes
    assert outcome.retry_after == wait(LIMIT, holding(8), START, 9) / SECOND  # type: ignore[operator]


def test_a_rest_never_lifts_a_bucket_above_its_capacity() -> None:
    asked = [Charge(LIMIT, "a", 0, up_to=0, rest=10**6)]
    _, writes = take({"a": holding(1)}, asked, START)
    assert writes == {"a": holding(LIMIT.capacity)}
    assert take({}, asked, START)[1] == {}
