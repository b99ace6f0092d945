"""Slots of requests at once."""

from __future__ import annotations

from flask_bucket.bucket import TTL_MARGIN, Kept, settle, take, ttl
from flask_bucket.decisions import Charge
from flask_bucket.limits import Limit
from tests.bucket.conftest import DAY, SECOND, THREE, ban, charge, holding
from tests.conftest import START

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
