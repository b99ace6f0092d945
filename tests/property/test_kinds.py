"""The promises of bans, slots and charges up to a maximum, checked against the oracle."""

from __future__ import annotations

from math import floor

from hypothesis import assume, given
from hypothesis import strategies as st

from flask_bucket.decisions import Charge, Outcome
from flask_bucket.limits import EXACT, Limit
from tests.conftest import START
from tests.property.clients import KEY, costs, drained, level, microseconds, oracle_of
from tests.property.engines import Subject
from tests.property.oracle import BanOracle, SlotsOracle
from tests.property.profiles import examples
from tests.property.test_promises import fine_limits
from tests.property.worlds import DAY, FEW, FORWARD, MS, SECOND, limits

BAN, SLOTS = "bucket:{a}:one:!ban", "bucket:{a}:one:@at-once"
ONE = Limit(1, 1)

times = st.one_of(st.integers(1, 10 * SECOND), st.integers(1, DAY))
rests = st.sampled_from((0, 0, 1, 5))
members = st.sampled_from(("one", "two", "three"))


def ban(limit: Limit, lasts: int) -> Charge:
    return Charge(limit, BAN, kind="ban", lasts=lasts)


def told_by_the_ban(subject: Subject, charge: Charge, refused: bool, now: int) -> Outcome:
    """Make a request that is refused or not, and return the ban's answer."""
    assume(now < EXACT)
    asked = Charge(ONE, KEY, 2 if refused else 0, counts_for=(BAN,))
    return subject.store.take([asked, charge], now=now).outcomes[1]


@examples(100, 1_000)
@given(limit=fine_limits, lasts=times, history=st.lists(st.tuples(FORWARD, st.booleans())))
def test_a_ban_counts_and_ends_as_exact_rationals_say(
    subject: Subject, limit: Limit, lasts: int, history: list[tuple[int, bool]]
) -> None:
    assume(limit.full + lasts * limit.step < EXACT)
    subject.forget()
    now, oracle = START, BanOracle(oracle_of(limit), lasts)
    for by, refused in history:
        now += by
        was_banned = oracle.is_banned(now)
        told = told_by_the_ban(subject, ban(limit, lasts), refused, now)
        counts = refused and not was_banned
        if counts:
            oracle.count(now)
        assert told.taken == counts
        assert told.allowed is not oracle.is_banned(now)
        assert microseconds(told.retry_after) == max(0, oracle.ends - now)


def test_a_ban_counts_no_refusal_of_another_limit(subject: Subject) -> None:
    subject.forget()
    for counts_for in ((), ("bucket:{a}:one:!other",)):
        refused = Charge(ONE, KEY, 2, counts_for=counts_for)
        told = subject.store.take([refused, ban(FEW, DAY)], now=START).outcomes[1]
        assert (told.taken, told.remaining) == (0, FEW.capacity)


def test_a_request_that_a_ban_refuses_is_counted_by_no_other(subject: Subject) -> None:
    subject.forget()
    other = Charge(FEW, f"{BAN}-2", kind="ban", lasts=DAY)
    refused = Charge(ONE, KEY, 2, counts_for=(BAN, other.key))
    for _ in range(FEW.capacity):
        subject.store.take([refused, ban(FEW, DAY)], now=START)
    decision = subject.store.take([refused, ban(FEW, DAY), other], now=START)
    assert [outcome.taken for outcome in decision.outcomes] == [0, 0, 0]


def test_a_ban_begins_within_a_tick(subject: Subject) -> None:
    subject.forget()
    charge = ban(Limit(2, 1, 3_600).in_ticks_of(MS), DAY)
    refused = Charge(ONE, KEY, 2, counts_for=(BAN,))
    subject.store.take([refused, charge], now=START)
    told = subject.store.take([refused, charge], now=START + 499).outcomes[1]
    assert not told.allowed
    assert microseconds(told.retry_after) == DAY


@examples(50, 500)
@given(
    after=st.integers(1, 30),
    lasts=times,
    hammering=st.lists(st.integers(0, 2 * DAY), max_size=10),
)
def test_a_client_is_out_for_exactly_as_long_after_exactly_as_many_refusals(
    subject: Subject, after: int, lasts: int, hammering: list[int]
) -> None:
    subject.forget()
    charge = ban(Limit(after, after, 3_600), lasts)
    for n in range(after):
        told = told_by_the_ban(subject, charge, True, START)
        assert told.allowed is (n + 1 < after)
    kept = subject.kept([BAN])
    for at in sorted(hammering):
        if at < lasts:
            assert not told_by_the_ban(subject, charge, True, START + at).allowed
            assert subject.kept([BAN]) == kept
    assert not told_by_the_ban(subject, charge, False, START + lasts - 1).allowed
    assert told_by_the_ban(subject, charge, False, START + lasts).allowed
    assert not told_by_the_ban(subject, charge, True, START + lasts).allowed  # one was left


@examples(50, 500)
@given(limit=limits(), ticks=times, late=st.integers(0, 3 * SECOND), earlier=FORWARD)
def test_a_ban_of_any_limit_ends_to_the_microsecond(
    subject: Subject, limit: Limit, ticks: int, late: int, earlier: int
) -> None:
    """Also of limits that count in milliseconds or seconds, at any moment of these."""
    lasts = ticks * limit.tick
    now = START + earlier + late
    assume(limit.full + ticks * limit.step < EXACT and now + lasts < EXACT)
    subject.forget()
    subject.store.settle([Charge(limit, BAN, limit.capacity)], now=START)
    subject.store.settle([Charge(limit, BAN, -1)], now=now)
    told = told_by_the_ban(subject, ban(limit, lasts), True, now)
    if not told.allowed:
        assert microseconds(told.retry_after) == lasts
        assert not told_by_the_ban(subject, ban(limit, lasts), False, now + lasts - 1).allowed
        assert told_by_the_ban(subject, ban(limit, lasts), False, now + lasts).allowed


@examples(100, 1_000)
@given(
    capacity=st.integers(1, 3),
    lasts=times,
    history=st.lists(
        st.tuples(st.integers(0, 20 * SECOND), st.sampled_from("hhhfrg"), members), max_size=20
    ),
)
def test_no_more_slots_are_held_than_there_are(
    subject: Subject, capacity: int, lasts: int, history: list[tuple[int, str, str]]
) -> None:
    """This holds with slots given back, too late or by a refusal, and with other refusals."""
    subject.forget()
    now, limit, oracle = START, Limit(capacity, 1), SlotsOracle(capacity, lasts)
    for by, what, member in history:
        now += by
        slot = Charge(limit, SLOTS, kind="slot", member=member, lasts=lasts)
        if what == "f":
            subject.store.settle([slot.given_back()], now=now)
            oracle.free(member, now)
            continue
        if what == "g":
            refused = Charge(ONE, KEY, 2)
            assert not subject.store.take([refused], held=[slot], now=now)
            oracle.free(member, now)
            continue
        asked = Charge(ONE, KEY, 2 if what == "r" else 0)
        decision = subject.store.take([slot, asked], now=now)
        fits = oracle.fits(member, now)
        assert decision.allowed is (fits and what == "h")
        if decision.allowed:
            oracle.hold(member, now)
        told = decision.outcomes[0]
        assert told.allowed is fits
        assert told.remaining == capacity - len(oracle.held(now))
        last = max(oracle.held(now).values(), default=now)
        assert microseconds(told.reset_after) == last - now
        held = {who: at for who, at in subject.kept([SLOTS]).get(SLOTS, {}).items() if at > now}
        assert held == oracle.held(now)
        assert len(held) <= capacity


@examples(100, 1_000)
@given(
    limit=fine_limits,
    history=st.lists(st.tuples(FORWARD, costs, st.integers(-2, 50), costs, rests), max_size=15),
)
def test_up_to_a_maximum_as_much_is_taken_as_there_is(
    subject: Subject, limit: Limit, history: list[tuple[int, int, int, int, int]]
) -> None:
    """The rest of an earlier charge is given back first, whatever is decided then."""
    subject.forget()
    now, oracle = START, oracle_of(limit)
    for by, cost, more, other, rest in history:
        now += by
        assume(now < EXACT)
        oracle.move(now)
        oracle.give(rest)
        asked = Charge(limit, KEY, cost, up_to=cost + more, rest=rest)
        charges = [asked, *([Charge(limit, KEY, other)] if other else ())]
        decision = subject.store.take(charges, now=now)
        taken = oracle.up_to(cost, cost + more, other) if decision.allowed else 0
        assert decision.outcomes[0].taken == taken
        oracle.level -= taken + other if decision.allowed else 0
        assert decision.outcomes[0].remaining == max(0, floor(oracle.level))
        if decision.allowed and taken + other:
            assert level(subject) == oracle.level


def test_a_look_holds_and_counts_nothing(subject: Subject) -> None:
    drained(subject, ONE, START)
    slot = Charge(ONE, SLOTS, kind="slot", member="one", lasts=SECOND)
    refused = Charge(ONE, KEY, counts_for=(BAN,))
    assert subject.store.peek([slot], now=START).outcomes[0].remaining == 0
    assert not subject.store.peek([refused, ban(FEW, DAY)], now=START)
    assert subject.kept([SLOTS, BAN]) == {}


def test_a_rest_never_lifts_a_bucket_above_its_capacity(subject: Subject) -> None:
    subject.forget()
    assert subject.store.take([Charge(FEW, KEY)], now=START)
    asked = Charge(FEW, KEY, up_to=9, rest=9)
    told = subject.store.take([asked], now=START).outcomes[0]
    assert (told.taken, told.remaining) == (FEW.capacity, 0)
