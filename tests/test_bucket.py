"""The reference bucket: pure functions of states, charges and the time."""

from __future__ import annotations

import pytest

from flask_bucket.bucket import (
    STEP_TOLERANCE,
    TTL_MARGIN,
    State,
    refresh,
    settle,
    take,
    ttl,
    wait,
)
from flask_bucket.decisions import Charge
from flask_bucket.limits import EXACT, Limit
from tests.conftest import START

SECOND = 1_000_000
TEN_YEARS = 3_652 * 86_400 * SECOND

#: Five tokens a second; 200,000 parts a token, one part each microsecond.
LIMIT = Limit(capacity=20, refill_rate=5)
#: Counts in ticks of a millisecond.
COARSE = Limit(capacity=10_007, refill_rate=10_007, per=30 * 86_400)


def holding(tokens: float, limit: Limit = LIMIT, at: int = START) -> State:
    return State(round(tokens * limit.scale), at, limit.scale)


def charge(cost: int = 1, key: str = "a", limit: Limit = LIMIT) -> Charge:
    return Charge(limit, key, cost)


def test_an_absent_bucket_is_full() -> None:
    assert refresh(LIMIT, None, START) == (holding(20), False)


def test_a_bucket_is_refilled_by_the_tick() -> None:
    assert refresh(LIMIT, holding(0), START + 1)[0] == State(1, START + 1, LIMIT.scale)
    assert refresh(LIMIT, holding(0), START + SECOND)[0] == holding(5, at=START + SECOND)


def test_only_whole_ticks_are_used_up() -> None:
    state, _ = refresh(COARSE, holding(0, COARSE), START + 1_999)
    assert state == State(COARSE.step, START + 1_000, COARSE.scale)


def test_a_full_bucket_does_not_count_idle_time() -> None:
    assert refresh(LIMIT, holding(20), START + 9)[0] == holding(20, at=START + 9)


@pytest.mark.parametrize("limit", [LIMIT, COARSE], ids=str)
def test_ten_idle_years_give_exactly_the_capacity(limit: Limit) -> None:
    state, _ = refresh(limit, holding(0, limit), START + TEN_YEARS)
    assert state == holding(limit.capacity, limit, START + TEN_YEARS)


@pytest.mark.parametrize("late", [1, 499, STEP_TOLERANCE])
def test_a_late_timestamp_refills_nothing_and_moves_nothing(late: int) -> None:
    assert refresh(LIMIT, holding(3), START - late) == (holding(3), False)


@pytest.mark.parametrize("back", [STEP_TOLERANCE + 1, 3_600 * SECOND, TEN_YEARS])
def test_a_clock_set_back_starts_over_with_the_same_balance(back: int) -> None:
    assert refresh(LIMIT, holding(3), START - back) == (holding(3, at=START - back), True)


def test_a_changed_scale_carries_the_balance_over_rounded_down() -> None:
    thirds = Limit(20, 7, 3)  # 3,000,000 parts a token
    assert refresh(LIMIT, State(2, START, thirds.scale), START)[0].tokens == 0
    assert refresh(thirds, holding(7), START)[0] == holding(7, thirds)
    assert refresh(LIMIT, State(-1, START, thirds.scale), START)[0].tokens == -1


def test_a_smaller_capacity_clamps_the_balance_and_a_larger_one_adds_nothing() -> None:
    assert refresh(Limit(5, 5), holding(20), START)[0] == holding(5)
    assert refresh(Limit(50, 5), holding(20), START)[0] == holding(20)


def test_the_wait_is_until_the_tick_that_brings_enough() -> None:
    assert wait(LIMIT, holding(0), START, 1) == 200_000
    assert wait(LIMIT, holding(1), START, 1) == 0
    assert (
        wait(COARSE, State(COARSE.scale - COARSE.step - 1, START, COARSE.scale), START, 1) == 2_000
    )


def test_the_wait_allows_for_a_tick_in_progress_and_for_a_late_time() -> None:
    state = State(COARSE.scale - 1, START, COARSE.scale)
    assert wait(COARSE, state, START + 300, 1) == 700
    assert wait(LIMIT, holding(0), START - 500, 1) == 200_500


def test_looking_needs_no_wait() -> None:
    assert wait(LIMIT, holding(-5), START, 0) == 0


def test_a_cost_above_the_capacity_is_never_afforded() -> None:
    assert wait(LIMIT, holding(20), START, 21) is None
    assert wait(LIMIT, holding(0), START, 20) == 4 * SECOND


@pytest.mark.parametrize(("tokens", "full_in"), [(20, 0), (19, 200), (0, 4_000), (-5, 5_000)])
def test_a_bucket_is_kept_for_the_time_to_full_and_a_minute(tokens: int, full_in: int) -> None:
    assert ttl(LIMIT, holding(tokens)) == full_in + TTL_MARGIN


def test_the_ttl_is_rounded_up_to_a_millisecond() -> None:
    assert ttl(LIMIT, State(LIMIT.full - 1, START, LIMIT.scale)) == 1 + TTL_MARGIN


def test_the_longest_ttl_is_counted_exactly() -> None:
    """A regression: the script rounded a TTL of thousands of years."""
    slow = Limit(1_000_000, 1, 365 * 86_400)
    lowest = State(slow.full - (EXACT - 1), START, slow.scale)
    assert ttl(slow, lowest) == EXACT - 1


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
    assert states["a"].tokens == lowest
