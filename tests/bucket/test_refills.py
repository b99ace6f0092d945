"""How one bucket is refilled, and how long it is kept."""

from __future__ import annotations

import pytest

from flask_bucket.bucket import STEP_TOLERANCE, TTL_MARGIN, State, refresh, ttl, wait
from flask_bucket.limits import EXACT, Limit
from tests.bucket.conftest import LIMIT, SECOND, holding
from tests.conftest import START

TEN_YEARS = 3_652 * 86_400 * SECOND
#: Counts in ticks of a millisecond.
COARSE = Limit(capacity=10_007, refill_rate=10_007, per=30 * 86_400)


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
