"""Calls that charge several buckets: all or none."""

from __future__ import annotations

from flask_bucket.bucket import State, settle, take
from flask_bucket.limits import EXACT, Limit
from tests.bucket.conftest import LIMIT, SECOND, charge, holding
from tests.conftest import START


def test_all_buckets_are_charged_or_none() -> None:
    states = {"a": holding(3), "b": holding(0)}
    both, writes = take(states, [charge(1), charge(1, "b")], START)
    assert (both.allowed, writes) == (False, {})
    one, writes = take(states, [charge(1)], START)
    assert (one.allowed, writes) == (True, {"a": holding(2)})


def test_a_refusal_says_what_each_bucket_has_and_which_one_lacks() -> None:
    states = {"a": holding(3), "b": holding(0)}
    refused, _ = take(states, [charge(1), charge(1, "b")], START)
    assert [(o.allowed, o.remaining) for o in refused.outcomes] == [(True, 3), (False, 0)]
    assert refused.binding is refused.outcomes[1]
    assert refused.retry_after == 0.2


def test_a_refusal_writes_that_the_clock_was_set_back_and_nothing_else() -> None:
    back = START - 2 * SECOND
    states = {"a": holding(3, at=back), "b": holding(0)}
    _, writes = take(states, [charge(1), charge(1, "b")], back)
    assert writes == {"b": holding(0, at=back)}


def test_held_tokens_are_given_back_on_refusal_and_kept_otherwise() -> None:
    states = {"a": holding(3), "b": holding(1)}
    refused, writes = take(states, [charge(2, "b")], START, held=[charge(1)])
    assert (refused.allowed, writes) == (False, {"a": holding(4)})
    allowed, writes = take(states, [charge(1, "b")], START, held=[charge(1)])
    assert (allowed.allowed, writes) == (True, {"b": holding(0)})


def test_a_wait_covers_held_tokens_of_the_same_bucket() -> None:
    """A regression: once they were back, the bucket had enough, and the refusal looked allowed."""
    refused, writes = take({"a": holding(2)}, [charge(3)], START, held=[charge(1)])
    assert writes == {"a": holding(3)}
    assert not refused.allowed
    assert refused.retry_after == 0.2  # until there are four, for the held one and these three
    assert refused.outcomes[0].remaining == 3


def test_a_refusal_stays_one_when_another_limit_of_the_key_refills_the_bucket() -> None:
    """A regression: refilled by the faster limit, the bucket had enough, and it looked allowed."""
    slow = Limit(1_000_000, 1, 365 * 86_400)  # counts in seconds, of which none has passed
    later = START + SECOND - 1
    refused, _ = take({"a": holding(0)}, [charge(1, limit=slow)], later, held=[charge(0)])
    assert not refused.allowed
    assert refused.outcomes[0].retry_after == 0.000_001


def test_a_request_that_asks_for_more_than_the_capacity_in_all_is_never_allowed() -> None:
    refused, _ = take({"a": holding(2)}, [charge(20)], START, held=[charge(1)])
    assert not refused.allowed
    assert refused.retry_after is None


def test_a_key_that_comes_twice_is_charged_for_both() -> None:
    _, writes = take({"a": holding(3)}, [charge(1), charge(2)], START)
    assert writes == {"a": holding(0)}
    refused, writes = take({"a": holding(3)}, [charge(2), charge(2)], START)
    assert (refused.allowed, writes) == (False, {})
    assert [outcome.allowed for outcome in refused.outcomes] == [True, False]
    assert refused.retry_after == 0.2


def test_a_shadow_limit_is_taken_when_it_can_be_and_refuses_nothing() -> None:
    states = {"a": holding(3), "b": holding(1)}
    taken, writes = take(states, [charge(1)], START, shadow=[charge(1, "b")])
    assert (taken.allowed, writes) == (True, {"a": holding(2), "b": holding(0)})
    reported, writes = take(states, [charge(1)], START, shadow=[charge(2, "b")])
    assert (reported.allowed, writes) == (True, {"a": holding(2)})
    assert not reported.outcomes[1].allowed


def test_a_shadow_limit_is_not_taken_by_a_refused_request() -> None:
    states = {"a": holding(0), "b": holding(1)}
    _, writes = take(states, [charge(1)], START, shadow=[charge(1, "b")])
    assert writes == {}


def test_a_cost_of_nothing_takes_nothing_and_is_always_allowed() -> None:
    for states in ({}, {"a": holding(0)}, {"a": holding(-5)}):
        looked, writes = take(states, [charge(0)], START)
        assert (looked.allowed, writes) == (True, {})


def test_settling_is_unconditional_and_may_leave_a_debt() -> None:
    assert settle({"a": holding(3)}, [charge(10)], START) == {"a": holding(-7)}
    assert settle({}, [charge(30)], START) == {"a": holding(-10)}


def test_giving_back_never_lifts_a_bucket_above_its_capacity() -> None:
    assert settle({"a": holding(3)}, [charge(-5)], START) == {"a": holding(8)}
    assert settle({"a": holding(3)}, [charge(-50)], START) == {"a": holding(20)}


def test_giving_back_to_an_absent_bucket_leaves_it_absent() -> None:
    assert settle({}, [charge(-5), charge(0)], START) == {}


def test_a_debt_is_cut_to_one_that_is_counted_exactly() -> None:
    lowest = LIMIT.full - (EXACT - 1)
    states = settle({}, [charge(EXACT - 1), charge(EXACT - 1)], START)
    assert states["a"] == State(lowest, START, LIMIT.scale)
