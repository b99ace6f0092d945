"""The promises to clients, checked against an oracle in exact rationals.

Each promise is tested on the in-process store, which runs the reference, and on the script in
a real server. The oracle shares no code with either.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from hypothesis import assume, example, given
from hypothesis import strategies as st

from flask_bucket.decisions import Charge
from flask_bucket.limits import EXACT, Limit
from tests.conftest import START
from tests.property.clients import (
    KEY,
    OTHER,
    costs,
    drained,
    heard,
    microseconds,
    oracle_of,
    requests,
    take,
)
from tests.property.engines import Subject
from tests.property.oracle import Oracle, ask
from tests.property.profiles import examples
from tests.property.worlds import AWKWARD, BACKWARD, FORWARD, limits

#: Limits that count in microseconds.
fine_limits = limits().filter(lambda limit: limit.tick == 1)

#: Tokens asked of the first bucket or the second one.
Asks = list[tuple[int, int]]
kinds = st.sampled_from(("take", "take", "take", "peek", "settle"))
asks = st.lists(st.tuples(st.integers(0, 1), costs), max_size=3)


def charges(pair: Sequence[Limit], some: Asks) -> list[Charge]:
    return [Charge(pair[i], (KEY, OTHER)[i], cost) for i, cost in some]


@examples(100, 1_000)
@given(
    pair=st.tuples(fine_limits, fine_limits),
    history=st.lists(st.tuples(FORWARD, kinds, asks, asks, asks), min_size=1, max_size=12),
)
@example(pair=(AWKWARD[0], AWKWARD[1]), history=[(0, "take", [], [], [(0, 21), (0, 1)])])
@example(pair=(AWKWARD[0], AWKWARD[1]), history=[(0, "settle", [(0, 1), (1, 2)], [], [])] * 2)
def test_every_answer_is_the_one_of_exact_rationals(
    subject: Subject,
    pair: tuple[Limit, Limit],
    history: list[tuple[int, str, Asks, Asks, Asks]],
) -> None:
    """Allowed, remaining, retry after and reset after: for any mixture of calls, to the us."""
    subject.forget()
    now, oracles = START, [oracle_of(limit) for limit in pair]
    for by, kind, first, held, shadow in history:
        now += by
        for oracle in oracles:
            oracle.move(now)
        if kind == "settle":
            _settle_alike(subject, pair, oracles, first, held, now)
            continue
        if kind == "peek":
            # It answers what a take would, and what that would leave.
            answer = subject.store.peek(charges(pair, first), now)
            copies = [copy(oracle) for oracle in oracles]
            expected = ask([(copies[i], cost) for i, cost in first])
        else:
            taken, back, dry = (charges(pair, some) for some in (first, held, shadow))
            answer = subject.store.take(taken, back, dry, now)
            expected = ask(*([(oracles[i], c) for i, c in some] for some in (first, held, shadow)))
        assert (answer.allowed, [heard(o) for o in answer.outcomes]) == expected


def _settle_alike(
    subject: Subject,
    pair: Sequence[Limit],
    oracles: Sequence[Oracle],
    spent: Asks,
    returned: Asks,
    now: int,
) -> None:
    """Settle, unless that could leave a debt that is too large to be counted exactly."""
    most = sum(cost for _, cost in spent)
    for limit, oracle in zip(pair, oracles, strict=True):
        if (oracle.level - most) * limit.scale <= limit.full - EXACT:
            return
    amounts = [*spent, *((i, -cost) for i, cost in returned)]
    subject.store.settle(charges(pair, amounts), now)
    for i, amount in amounts:
        oracles[i].give(-amount)


@examples(100, 1_000)
@given(
    limit=limits(),
    history=st.lists(st.tuples(st.one_of(FORWARD, BACKWARD), costs), max_size=5),
    cost=costs,
    debt=st.integers(0, 3),
)
def test_a_lone_client_that_waits_exactly_retry_after_is_allowed(
    subject: Subject, limit: Limit, history: list[tuple[int, int]], cost: int, debt: int
) -> None:
    """A client that comes a microsecond early is not: a wait ends where a tick does."""
    cost = min(cost, limit.capacity)
    now = START
    drained(subject, limit, now)
    subject.store.settle([Charge(limit, KEY, debt)], now=now)
    for by, earlier in history:
        now = max(0, now + by)
        take(subject, limit, earlier, now)
    wait = microseconds(take(subject, limit, cost, now).retry_after)
    assert wait is not None
    assume(0 < wait < EXACT - now)
    early = subject.store.peek([Charge(limit, KEY, cost)], now=now + wait - 1)
    assert not early.allowed
    assert take(subject, limit, cost, now + wait).allowed


@examples(50, 500)
@given(limit=limits(), first=costs, second=costs, by=FORWARD, same=st.booleans())
@example(limit=AWKWARD[0], first=2, second=20, by=0, same=True)
def test_a_request_that_was_charged_before_its_refusal_waits_long_enough_for_all_of_it(
    subject: Subject, limit: Limit, first: int, second: int, by: int, same: bool
) -> None:
    """It asks again for the tokens that were given back, perhaps of the same bucket."""
    subject.forget()
    now = START
    held = [Charge(limit, KEY if same else OTHER, first)]
    rest = [Charge(limit, KEY, second)]
    subject.store.take([Charge(limit, KEY, limit.capacity // 2)], now=now)
    now += by
    if not subject.store.take(held, now=now).allowed:
        return
    refused = subject.store.take(rest, held=held, now=now)
    wait = microseconds(refused.retry_after)
    if wait is None:
        assert second + (first if same else 0) > limit.capacity
        return
    if not refused.allowed:
        assume(wait < EXACT - now)
        assert subject.store.take(held, now=now + wait).allowed
        assert subject.store.take(rest, held=held, now=now + wait).allowed


@examples(100, 1_000)
@given(
    history=st.lists(
        st.tuples(st.one_of(FORWARD, BACKWARD), limits(), st.integers(-50, 50)), max_size=10
    )
)
def test_remaining_is_never_negative_and_never_above_the_capacity(
    subject: Subject, history: list[tuple[int, Limit, int]]
) -> None:
    """This holds whatever is taken, settled or given back, and however clock and limit change."""
    subject.forget()
    now = START
    for by, limit, amount in history:
        now = max(0, now + by)
        answer = take(subject, limit, abs(amount), now)
        assert 0 <= answer.remaining <= limit.capacity
        assert answer.reset_after >= 0
        assert answer.retry_after is None or answer.retry_after >= 0
        subject.store.settle([Charge(limit, KEY, amount)], now=now)
        if amount and (state := subject.kept([KEY]).get(KEY)):
            assert state.tokens <= limit.capacity * state.scale


@examples(50, 500)
@given(pair=st.tuples(limits(), limits()), spent=costs, by=FORWARD, asked=costs)
def test_a_refusal_changes_nothing(
    subject: Subject, pair: tuple[Limit, Limit], spent: int, by: int, asked: int
) -> None:
    """It changes neither the bucket that refuses nor those that would have allowed."""
    subject.forget()
    enough, short = Charge(pair[0], KEY), Charge(pair[1], OTHER, pair[1].capacity)
    subject.store.settle([Charge(pair[0], KEY, spent), Charge(pair[1], OTHER, 1)], now=START)
    now = START + by
    before, ttls = subject.kept_for([KEY, OTHER])
    refused = subject.store.take([enough, short, Charge(pair[1], OTHER, 1 + asked)], now=now)
    assert not refused.allowed
    after, later = subject.kept_for([KEY, OTHER])
    assert after == before
    for key, ttl in ttls.items():
        assert ttl is not None
        assert (later[key] or 0) <= ttl


@examples(50, 500)
@given(limit=limits(), gone=st.integers(1, 30), wait=FORWARD, history=requests)
def test_an_absent_bucket_and_a_full_one_cannot_be_told_apart(
    subject: Subject, limit: Limit, gone: int, wait: int, history: list[tuple[int, int]]
) -> None:
    subject.forget()
    subject.store.settle([Charge(limit, KEY, gone)], now=START)
    subject.store.settle([Charge(limit, KEY, -gone)], now=START + wait)
    now = START + wait
    for by, cost in history:
        now += by
        full, absent = (
            subject.store.take([Charge(limit, key, cost)], now=now).outcomes[0]
            for key in (KEY, OTHER)
        )
        assert heard(full) == heard(absent)
