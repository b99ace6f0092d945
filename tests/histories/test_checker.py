"""The checker alone, on small histories that are made up."""

from __future__ import annotations

import pytest

from flask_bucket.limits import Limit
from tests.conftest import START
from tests.histories.checker import Unexplained, explain
from tests.histories.history import Answer, Call, History

#: A token in 1,000 microseconds.
LIMIT = Limit(capacity=3, refill_rate=1_000)
TOKEN = 1_000


def granted(at: int, remaining: int, cost: int = 1, late: int = 0) -> Call:
    return Call(at + START - 1, at + START + late, cost, Answer(True, remaining, at + START))


def refused(at: int, remaining: int, cost: int = 1) -> Call:
    return Call(at + START, at + START + 1, cost, Answer(False, remaining, at + START))


def lost(begun: int, ended: int, cost: int = 1) -> Call:
    return Call(begun + START, ended + START, cost)


def is_explained(*calls: Call, resets: tuple[int, ...] = ()) -> bool:
    try:
        explain(LIMIT, History([*calls], [START + reset for reset in resets]))
    except Unexplained:
        return False
    return True


EMPTIED = (granted(1, 2), granted(2, 1), granted(3, 0))


def test_what_a_bucket_does_is_explained() -> None:
    assert is_explained(*EMPTIED, refused(4, 0), refused(1_000, 0), granted(1_001, 0))


def test_the_order_of_the_record_says_nothing() -> None:
    assert is_explained(granted(3, 0), granted(1, 2), granted(2, 1))


def test_the_order_that_explains_is_told() -> None:
    known, unknown = [granted(10, 2), granted(20, 0)], lost(11, 30)
    assert explain(LIMIT, History([unknown, *known])) == [known[0], unknown, known[1]]


def test_calls_of_one_microsecond_may_have_any_order() -> None:
    assert is_explained(granted(1, 0), granted(1, 2), granted(1, 1))
    assert not is_explained(granted(1, 0), granted(1, 2), granted(1, 2))


@pytest.mark.parametrize("remaining", [0, 2])
def test_a_wrong_remaining_is_rejected(remaining: int) -> None:
    assert not is_explained(granted(1, 2), granted(2, remaining), granted(3, 0))


def test_a_token_that_was_not_there_is_rejected() -> None:
    assert not is_explained(*EMPTIED, granted(1_000, 0))


def test_a_refusal_of_what_was_there_is_rejected() -> None:
    assert not is_explained(granted(1, 2), refused(2, 2))
    assert not is_explained(*EMPTIED, refused(1_001, 0))
    assert not is_explained(*EMPTIED, refused(1_001, 1))


def test_a_missing_call_is_rejected() -> None:
    assert not is_explained(EMPTIED[0], EMPTIED[2])


def test_an_answer_from_outside_of_its_call_is_rejected() -> None:
    at = Answer(True, 2, START)
    assert not is_explained(Call(START + 1, START + 2, 1, at))
    assert not is_explained(Call(START - 2, START - 1, 1, at))


def test_a_lost_call_may_have_happened_or_not() -> None:
    for remaining in (1, 0):
        assert is_explained(granted(1, 2), lost(2, 10), granted(5, remaining))
    assert not is_explained(granted(1, 2), lost(2, 10), granted(5, 2))


def test_a_lost_call_happens_once() -> None:
    assert not is_explained(granted(1, 2), lost(2, 10, 1), refused(5, 0), refused(6, 0))
    assert is_explained(granted(1, 2), lost(2, 10, 2), refused(5, 0), refused(6, 0))
    assert not is_explained(granted(1, 2), lost(2, 10, 1), granted(5, 1, 0), granted(9, 0, 0))


def test_a_lost_call_happens_between_its_begin_and_its_end() -> None:
    assert not is_explained(lost(2, 10), granted(1, 1), refused(5, 1, 3))
    assert not is_explained(granted(1, 2), lost(2, 10), refused(11, 2, 3), refused(20, 1, 3))
    assert is_explained(granted(1, 2), lost(2, 10), refused(9, 2, 3), refused(20, 1, 3))


def test_of_several_lost_calls_any_may_have_happened() -> None:
    calls = granted(1, 2), lost(2, 50, 1), lost(3, 50, 2)
    for remaining in (2, 1, 0):
        assert is_explained(*calls, refused(20, remaining, 3))
    assert not is_explained(*calls, granted(20, 0, 0), granted(1_000, 3, 0))
    assert not is_explained(*calls, granted(60, 0), refused(61, 1, 3))


def test_a_full_bucket_wastes_what_is_refilled_before_a_lost_call() -> None:
    """If it came early, its token is back by now; if it came late, it is missing."""
    for remaining in (3, 2):
        assert is_explained(lost(1, 5_000), granted(5_001, remaining, 0))
    assert is_explained(lost(4_500, 5_000), granted(5_001, 2, 0), granted(5_500, 3, 0))
    assert not is_explained(lost(4_500, 5_000), granted(5_001, 2, 0), granted(5_499, 3, 0))
    # Seen late, it came late.
    seen = lost(1, 5_000), granted(4_900, 3, 0), granted(5_001, 2, 0)
    assert not is_explained(*seen, granted(5_899, 3, 0))
    assert is_explained(*seen, granted(5_900, 3, 0))
    assert not is_explained(*seen, granted(6_001, 2, 0))


def test_a_lost_call_may_have_waited_for_its_token() -> None:
    assert is_explained(*EMPTIED, lost(4, 3_000), refused(1_500, 0))
    assert not is_explained(*EMPTIED, lost(4, 3_000), refused(2_500, 0))
    assert not is_explained(*EMPTIED, lost(4, 900), refused(1_500, 0))


def test_a_reset_fills_the_bucket() -> None:
    assert is_explained(*EMPTIED, granted(10, 2), resets=(5,))
    assert not is_explained(*EMPTIED, granted(10, 2))
    assert not is_explained(*EMPTIED, refused(10, 0), resets=(5,))


def test_a_lost_call_may_be_on_either_side_of_a_reset() -> None:
    for remaining in (2, 1):
        assert is_explained(*EMPTIED, lost(4, 20), granted(10, remaining), resets=(5,))
    assert not is_explained(*EMPTIED, lost(4, 20), granted(10, 0), resets=(5,))


def test_each_life_of_a_server_is_explained_alone() -> None:
    calls = [*EMPTIED, lost(4, 20, 2), granted(10, 0), refused(11, 0)]
    first, second = History(calls, [START + 5]).lives()
    assert len(first.calls) == len(second.calls) + 1 == 4
    assert is_explained(*first.calls)
    assert is_explained(*second.calls)
    assert not is_explained(*second.calls[:-1])
