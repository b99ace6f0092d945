"""Bans count refusals."""

from __future__ import annotations

from flask_bucket.bucket import State, refresh, settle, take
from flask_bucket.decisions import Charge
from flask_bucket.limits import Limit
from tests.bucket.conftest import DAY, LIMIT, SECOND, THREE, ban, charge, holding
from tests.conftest import START


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
