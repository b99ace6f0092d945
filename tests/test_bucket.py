"""The reference bucket: pure functions of states, charges and the time."""

from __future__ import annotations

import pytest

from flask_bucket.bucket import (
    STEP_TOLERANCE,
    TTL_MARGIN,
    Kept,
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
    assert states["a"] == State(lowest, START, LIMIT.scale)


#: Three refusals an hour, and then out for a day.
THREE = Limit(3, 3, 3_600)
DAY = 86_400 * SECOND


def ban(lasts: int = DAY, key: str = "ban") -> Charge:
    return Charge(THREE, key, kind="ban", lasts=lasts)


def counted(cost: int = 1, key: str = "a", ban: str = "ban") -> Charge:
    """A charge whose refusal a ban counts."""
    return Charge(LIMIT, key, cost, counts_for=(ban,))


def test_a_ban_loses_a_token_to_a_refused_request_and_none_to_an_allowed_one() -> None:
    states = {"a": holding(1)}
    allowed, writes = take(states, [counted(1), ban()], START)
    assert (allowed.allowed, writes) == (True, {"a": holding(0)})
    refused, writes = take(states, [counted(2), ban()], START)
    assert (refused.allowed, writes) == (False, {"ban": holding(2, THREE)})
    assert [(o.allowed, o.taken) for o in refused.outcomes] == [(False, 0), (True, 1)]


def test_a_ban_counts_only_the_refusals_of_its_own_charges() -> None:
    states = {"a": holding(0)}
    for other in (charge(1), counted(1, ban="another")):
        refused, writes = take(states, [other, ban()], START)
        assert (refused.allowed, writes) == (False, {})


def test_a_request_is_counted_once_however_many_charges_are_refused() -> None:
    states = {"a": holding(0), "b": holding(0)}
    _, writes = take(states, [counted(), counted(key="b"), ban(), ban()], START)
    assert writes == {"ban": holding(2, THREE)}


def test_the_refusal_that_leaves_less_than_a_token_begins_the_ban_and_tells_its_end() -> None:
    states = {"a": holding(0), "ban": holding(1.5, THREE)}
    refused, writes = take(states, [counted(), ban()], START)
    assert refused.retry_after == 86_400.0
    assert refused.binding is refused.outcomes[1]
    assert (refused.binding.taken, refused.binding.reset_after) == (1, 86_400.0)
    begun = writes["ban"]
    assert isinstance(begun, State)
    for early, tokens in ((1, False), (0, True)):
        state, _ = refresh(THREE, begun, START + DAY - early)
        assert (state.tokens >= THREE.scale) is tokens
    assert state == holding(1, THREE, at=START + DAY)


def test_a_ban_refuses_takes_nothing_and_is_left_as_it_is() -> None:
    states = {"a": holding(3), "ban": holding(-5, THREE)}
    for asked in (counted(1), counted(9)):
        refused, writes = take(states, [asked, ban()], START)
        assert (refused.allowed, writes) == (False, {})
        assert refused.outcomes[1].taken == 0
        assert refused.outcomes[1].retry_after == 6 * 1_200


def test_a_request_that_a_ban_refuses_counts_for_no_other_ban() -> None:
    states = {"a": holding(0), "ban": holding(0, THREE)}
    charges = [Charge(LIMIT, "a", counts_for=("ban", "other")), ban(key="other"), ban()]
    _, writes = take(states, charges, START)
    assert writes == {}


def test_a_ban_that_was_charged_earlier_counts_and_refuses_nothing() -> None:
    empty = {"a": holding(3), "ban": holding(0, THREE)}
    allowed, _ = take(empty, [counted()], START, held=[ban()])
    assert allowed.allowed
    refused, writes = take({"a": holding(0)}, [counted()], START, held=[ban()])
    assert writes == {"ban": holding(2, THREE)}
    assert [(o.kind, o.allowed, o.taken) for o in refused.outcomes] == [
        ("rate", False, 0),
        ("ban", True, 1),
    ]


def test_an_enforced_ban_does_not_count_a_dry_run_limit_and_a_ban_of_a_dry_run_does() -> None:
    states = {"a": holding(0)}
    _, writes = take(states, [ban()], START, shadow=[counted()])
    assert writes == {}
    reported, writes = take(states, [], START, shadow=[counted(), ban()])
    assert (reported.allowed, writes) == (True, {"ban": holding(2, THREE)})


def test_a_ban_of_a_dry_run_is_reported_and_refuses_nothing() -> None:
    states = {"a": holding(3), "ban": holding(0, THREE)}
    reported, writes = take(states, [charge(1)], START, shadow=[ban()])
    assert (reported.allowed, writes) == (True, {"a": holding(2)})
    assert not reported.outcomes[1].allowed


def test_a_ban_in_coarse_ticks_lasts_exactly_as_long() -> None:
    limit = Limit(10_007, 10_007, 30 * 86_400)  # counts in milliseconds
    states = {"a": holding(0), "ban": holding(1, limit)}
    refused, _ = take(
        states, [counted(), Charge(limit, "ban", kind="ban", lasts=90 * SECOND)], START
    )
    assert refused.retry_after == 90.0


def test_no_ban_is_settled() -> None:
    assert settle({"ban": holding(1, THREE)}, [ban(), ban().given_back()], START) == {}


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


#: Two at once.
TWO = Limit(2, 2)


def slot(member: str, lasts: int = 60 * SECOND, key: str = "s") -> Charge:
    return Charge(TWO, key, kind="slot", member=member, lasts=lasts)


def test_a_slot_is_held_until_its_time_is_over() -> None:
    held, writes = take({}, [slot("one")], START)
    assert writes == {"s": {"one": START + 60 * SECOND}}
    assert (held.outcomes[0].remaining, held.outcomes[0].taken) == (1, 1)
    assert held.outcomes[0].reset_after == 60.0


def test_no_more_slots_are_held_than_there_are() -> None:
    states = {"s": {"one": START + 1, "two": START + 9 * SECOND}}
    refused, writes = take(states, [slot("three")], START)
    assert (refused.allowed, writes) == (False, {})
    told = refused.outcomes[0]
    assert (told.remaining, told.retry_after, told.reset_after) == (0, 1.0, 9.0)


def test_a_slot_is_free_at_the_end_of_its_time() -> None:
    states = {"s": {"one": START, "two": START + 1}}
    allowed, writes = take(states, [slot("three")], START)
    assert allowed.allowed
    assert writes == {"s": {"two": START + 1, "three": START + 60 * SECOND}}


def test_the_same_member_holds_one_slot_and_its_time_stays() -> None:
    states = {"s": {"one": START + 1, "two": START + 2}}
    again, writes = take(states, [slot("one"), slot("two")], START)
    assert (again.allowed, writes) == (True, {})
    assert [outcome.taken for outcome in again.outcomes] == [0, 0]
    twice, writes = take({}, [slot("one"), slot("one")], START)
    assert [outcome.taken for outcome in twice.outcomes] == [1, 0]


def test_two_members_of_one_call_hold_two_slots() -> None:
    states = {"s": {"one": START + 1}}
    refused, writes = take(states, [slot("two"), slot("three")], START)
    assert (refused.allowed, writes) == (False, {})


def test_a_refused_request_holds_no_slot_and_a_full_one_takes_no_token() -> None:
    _, writes = take({"a": holding(0)}, [charge(), slot("one")], START)
    assert writes == {}
    full = {"s": {"one": START + 1, "two": START + 1}}
    _, writes = take(full, [charge(), slot("three")], START)
    assert writes == {}


def test_giving_back_frees_the_slot_of_its_member_alone() -> None:
    states = {"s": {"one": START + 1, "two": START + 2}}
    assert settle(states, [slot("one").given_back()], START) == {"s": {"two": START + 2}}
    for late in ("nobody", "two"):
        assert settle(states, [slot(late).given_back()], START + 2) == {}


def test_a_refusal_gives_back_the_slot_that_was_held() -> None:
    states: dict[str, Kept] = {"a": holding(0), "s": {"one": START + 1, "two": START + 2}}
    refused, writes = take(states, [charge()], START, held=[slot("one")])
    assert (refused.allowed, writes) == (False, {"s": {"two": START + 2}})


def test_a_slot_held_for_too_long_is_cut_even_by_a_refusal() -> None:
    states = {"s": {"one": START + DAY, "two": START + 1}}
    _, writes = take(states, [slot("three")], START)
    assert writes == {"s": {"one": START + 60 * SECOND, "two": START + 1}}


def test_slots_are_kept_for_a_minute_after_the_last_one_is_free() -> None:
    holders = {"one": START + 1, "two": START + 2_500}
    assert ttl(TWO, holders, START) == 3 + TTL_MARGIN


def test_a_slot_of_a_dry_run_is_held_and_reported_and_refuses_nothing() -> None:
    full = {"s": {"one": START + 1, "two": START + 1}}
    for states, told in (({}, True), (full, False)):
        reported, _ = take(states, [], START, shadow=[slot("three")])
        assert (reported.allowed, reported.outcomes[0].allowed) == (True, told)


def test_a_ban_counts_a_full_slot() -> None:
    full = {"s": {"one": START + 1, "two": START + 1}}
    asked = Charge(TWO, "s", kind="slot", member="three", lasts=1, counts_for=("ban",))
    _, writes = take(full, [asked, ban()], START)
    assert writes == {"ban": holding(2, THREE)}
