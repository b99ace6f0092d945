"""Leases: tokens taken ahead, on a clock that is moved by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from flask_bucket import Charge, Decision, Limit, MemoryStore, StoreUnavailable
from flask_bucket.stores.base import WrappingStore
from flask_bucket.stores.lease import share_of_worker
from flask_bucket.stores.leases import LeaseStore

SECOND = 1_000_000
LEASE = 0.1
#: A worker of two may hold 100 of its tokens.
HOT = Limit.parse("1000/second burst 800")
KEY, OTHER = "bucket:{all}:@application:per-second", "bucket:{c}:page:per-minute"


class Watched(WrappingStore):
    """A store that notes what it is asked, and may be out of reach or lose its answers."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.takes: list[Sequence[Charge]] = []
        self.held: list[Sequence[Charge]] = []
        self.settled: list[Charge] = []
        self.loses_answers = False
        self.is_degraded = False

    def take(
        self,
        charges: Sequence[Charge],
        held: Sequence[Charge] = (),
        shadow: Sequence[Charge] = (),
        now: int | None = None,
    ) -> Decision:
        self.takes.append(charges)
        self.held.append(held)
        if self.is_degraded:
            return Decision(True, degraded=True)
        decision = super().take(charges, held, shadow, now)
        if self.loses_answers:
            raise StoreUnavailable("no reply in time")
        return decision

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        self.settled += charges
        super().settle(charges, now)


class World:
    """Workers with leases of one store, on one clock."""

    def __init__(self, workers: int = 2) -> None:
        self.now = 1_000_000 * SECOND
        self.memory = MemoryStore(lambda: self.now)
        self.store = Watched(self.memory)
        self.notes: Counter[str] = Counter()
        self.workers = [self.worker(workers) for _ in range(workers)]

    def worker(self, workers: int | None) -> LeaseStore:
        made = LeaseStore(self.store, workers, lambda: self.now / SECOND)
        made.note = lambda limit, what, tokens: self.notes.update({what: tokens})
        return made

    def take(self, *charges: Charge, worker: int = 0, **more: Any) -> Decision:
        return self.workers[worker].take(charges, **more)

    def wait(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)

    def warm(self, requests: int = 20, worker: int = 0) -> None:
        """Let a worker send so many requests, and begin a lease with the next one."""
        for _ in range(requests):
            assert self.take(hot(), worker=worker)

    def in_bucket(self) -> int:
        return self.memory.peek([Charge(HOT, KEY, 0)]).outcomes[0].remaining


def hot(cost: int = 1, **more: Any) -> Charge:
    return Charge(HOT, KEY, cost, **{"lease": LEASE, **more})


@pytest.fixture
def world() -> World:
    return World()


def test_most_requests_to_a_hot_bucket_take_no_call(world: World) -> None:
    for _ in range(700):
        assert world.take(hot())
        world.wait(0.001)
    assert len(world.store.takes) < 700 * 0.05


def test_a_cold_bucket_is_charged_with_each_request(world: World) -> None:
    for _ in range(10):
        decision = world.take(hot())
        assert (decision.allowed, decision.leased) == (True, False)
        world.wait(2 * LEASE)
    assert len(world.store.takes) == 10
    assert world.in_bucket() == HOT.capacity


def test_as_much_is_taken_ahead_as_was_used(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    assert world.take(hot())
    assert world.store.takes[-1][0].up_to == 1 + 20
    calls = len(world.store.takes)
    for _ in range(20):
        assert world.take(hot()).leased
    assert len(world.store.takes) == calls


def test_a_worker_holds_its_share_at_most(world: World) -> None:
    for _ in range(3):
        world.warm(150)
        world.wait(LEASE / 2)
    asked = [(charge.up_to or 1) - charge.cost for (charge,) in world.store.takes]
    assert max(asked) == share_of_worker(HOT, LEASE, 2) == 100


@pytest.mark.parametrize(
    ("limit", "seconds", "workers", "share"),
    [
        (HOT, 0.1, 2, 100),
        (HOT, 0.1, None, 0),
        (HOT, 0.1, 200, 0),  # one token each saves no call
        (HOT, 0.1, 100, 2),
        (Limit.parse("30/second burst 800"), 0.1, 2, 0),  # three tokens in a lease's time
        (Limit.parse("40/second burst 800"), 0.1, 2, 100),
    ],
)
def test_the_share_of_a_worker(
    limit: Limit, seconds: float, workers: int | None, share: int
) -> None:
    assert share_of_worker(limit, seconds, workers) == share


def test_without_the_number_of_workers_nothing_is_leased(world: World) -> None:
    world.workers[0] = world.worker(None)
    world.warm(20)
    assert len(world.store.takes) == 20
    assert all(charge.up_to is None for charges in world.store.takes for charge in charges)


def test_a_limit_without_a_lease_is_charged_as_ever(world: World) -> None:
    charges = (Charge(HOT, KEY),)
    for _ in range(5):
        world.workers[0].take(charges)
    assert all(asked is charges for asked in world.store.takes)


@pytest.mark.parametrize("kind", ["slot", "ban"])
def test_only_tokens_are_taken_ahead(world: World, kind: Any) -> None:
    special = Charge(HOT, f"{KEY}!", kind=kind, member="a", lasts=SECOND, lease=LEASE)
    for _ in range(5):
        world.take(hot(), special)
        assert [charge.up_to for charge in world.store.takes[-1] if charge.kind == kind] == [None]


def test_a_rest_goes_back_with_the_next_call_in_that_call(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    world.wait(1)  # the lease's time is over, and the bucket is full
    assert world.in_bucket() == HOT.capacity
    world.take(hot())
    (charge,) = world.store.takes[-1]
    assert (charge.rest, charge.up_to) == (20, 1)
    assert world.store.settled == []
    assert world.in_bucket() == HOT.capacity - 1


def test_tokens_are_not_spent_after_the_lease(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    world.wait(LEASE - 1e-6)
    assert world.take(hot()).leased
    world.wait(1e-6)
    assert not world.take(hot()).leased


def test_the_leases_time_counts_from_before_the_call(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    take = world.memory.take

    def slow(*arguments: Any) -> Decision:
        decision = take(*arguments)
        world.wait(LEASE)
        return decision

    world.memory.take = slow  # type: ignore[method-assign, assignment]
    world.take(hot())
    world.memory.take = take  # type: ignore[method-assign]
    assert not world.take(hot()).leased


def test_a_rest_is_sent_back_once_even_if_the_answer_is_lost(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    world.wait(LEASE)
    world.store.loses_answers = True
    with pytest.raises(StoreUnavailable):
        world.take(hot())
    assert world.store.takes[-1][0].rest == 20
    world.store.loses_answers = False
    world.take(hot())
    assert world.store.takes[-1][0].rest == 0


def test_a_lost_answer_leaves_room_for_the_next(world: World) -> None:
    world.warm(20)
    for _ in range(10):
        world.wait(LEASE)
        world.store.loses_answers = True
        with pytest.raises(StoreUnavailable):
            world.take(hot())
        world.store.loses_answers = False
        world.warm(20)
    world.wait(LEASE)
    assert world.take(hot())
    assert world.store.takes[-1][0].up_to == 21


def test_calls_at_the_same_time_hold_no_more_than_one(world: World) -> None:
    world.warm(150)
    world.wait(LEASE)
    take, deep = world.memory.take, 3

    def overtaken(*arguments: Any) -> Decision:
        nonlocal deep
        if deep:
            deep -= 1
            world.take(hot())  # another thread, before the answer
        return take(*arguments)

    world.memory.take = overtaken  # type: ignore[method-assign, assignment]
    calls = len(world.store.takes)
    world.take(hot())
    asked = [(charge.up_to or 1) - 1 for (charge,) in world.store.takes[calls:]]
    assert sum(asked) == 100
    assert world.in_bucket() >= HOT.capacity - 150 - 100 - 4


def test_a_refusal_is_repeated_for_the_leases_time(world: World) -> None:
    world.take(hot(800))
    refused = world.take(hot())
    assert (refused.allowed, refused.cached) == (False, False)
    assert refused.retry_after == LEASE
    calls = len(world.store.takes)
    for _ in range(99):
        world.wait(0.001)
        again = world.take(hot())
        assert (again.allowed, again.cached) == (False, True)
        assert again.retry_after is not None
        assert again.outcomes[0].remaining == 0
    assert len(world.store.takes) == calls
    world.wait(again.retry_after or 0)
    assert world.take(hot())


def test_a_repeated_refusal_tells_a_larger_cost_its_own_wait(world: World) -> None:
    world.take(hot(800))
    world.take(hot())
    larger = world.take(hot(301))
    assert larger.cached
    assert larger.retry_after is not None
    world.wait(larger.retry_after)
    assert world.take(hot(301))
    assert world.take(hot(801)).retry_after is None


def test_a_smaller_cost_than_was_refused_is_asked_about(world: World) -> None:
    world.take(hot(799))
    assert not world.take(hot(2))
    assert world.take(hot(1))


def test_a_refusal_gives_the_lease_its_tokens_back(world: World) -> None:
    page = Charge(Limit.parse("1/minute"), OTHER)
    world.take(page)
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())  # holds 20
    for _ in range(5):
        refused = world.take(hot(), page)
        assert not refused
        assert [outcome.allowed for outcome in refused.outcomes] == [True, False]
    assert world.store.takes[-1] == [page]  # in one call, without what is leased
    for _ in range(20):
        assert world.take(hot()).leased


def test_a_later_refusal_gives_the_lease_its_tokens_back(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    decision = world.take(hot())
    held = [hot().taken_as(decision.outcomes[0])]
    page = Charge(Limit.parse("1/minute"), OTHER)
    world.take(page)
    assert not world.take(page, held=held)
    assert world.store.held[-1] == []
    assert world.store.settled == []
    for _ in range(20):
        assert world.take(hot()).leased


def test_what_was_held_before_a_remembered_refusal_is_given_back(world: World) -> None:
    page = Charge(Limit.parse("1/minute"), OTHER)
    world.take(page)
    world.take(hot(800))
    world.take(hot())
    assert world.take(hot(), held=[page]).cached
    assert world.memory.take([page])


def test_tokens_for_which_a_lease_has_no_room_go_to_the_store(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    held = [hot(300, taken_from="lease")]
    page = Charge(Limit.parse("1/minute"), OTHER)
    world.take(page)
    assert not world.take(page, held=held)
    assert [charge.cost for charge in world.store.settled] == [-(300 - 80)]


def test_a_lease_refilled_meanwhile_sends_what_a_refused_request_took_to_the_store(
    world: World,
) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    page, lease = Charge(Limit.parse("1/minute"), OTHER), world.workers[0]._leases[KEY]
    world.take(page)
    before = world.in_bucket() + lease.tokens
    take = world.store.take

    def others_first(*asked: Any) -> Decision:
        """Refill the lease by another thread, while this request waits for its answer."""
        lease.tokens += lease.most - lease.tokens
        return take(*asked)

    world.store.take = others_first  # type: ignore[method-assign, assignment]
    refilled = lease.most - (lease.tokens - 10)
    assert not world.take(hot(10), page)
    assert world.in_bucket() + lease.tokens == before + refilled
    assert [charge.cost for charge in world.store.settled] == [-10]


def test_remaining_counts_the_bucket_and_what_is_held(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    told = [world.take(hot()).outcomes[0] for _ in range(20)]
    assert [outcome.remaining for outcome in told] == list(range(799, 779, -1))
    assert told[0].reset_after == pytest.approx(0.001)
    assert told[-1].reset_after == pytest.approx(0.020)


def test_a_look_adds_what_is_held(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    (outcome,) = world.workers[0].peek([hot(0)]).outcomes
    assert outcome.remaining == 799
    assert world.workers[0].peek([hot(799)]).allowed
    assert not world.workers[0].peek([hot(800)]).allowed
    assert world.workers[1].peek([hot(0)]).outcomes[0].remaining == 779


def test_a_settlement_goes_to_the_store(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    world.workers[0].settle([hot(7), hot(-2)])
    assert [charge.cost for charge in world.store.settled] == [7, -2]
    assert world.workers[0].peek([hot(0)]).outcomes[0].remaining == 799 - 5


def test_tokens_that_return_end_a_remembered_refusal(world: World) -> None:
    world.take(hot(800))
    assert not world.take(hot())
    world.workers[0].settle([hot(-1)])
    assert world.take(hot())


def test_a_reset_ends_the_leases_of_its_client(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    world.workers[0].reset("someone else")
    assert world.take(hot()).leased
    world.workers[0].reset("all")
    assert not world.take(hot()).leased
    assert world.store.takes[-1][0].rest == 0


def test_a_changed_limit_ends_a_lease_and_gives_back_what_is_left(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    changed = Charge(Limit.parse("2000/second burst 800"), KEY, lease=LEASE)
    assert not world.take(changed).leased
    assert world.store.takes[-1][0].rest == 20


def test_closing_gives_back_what_is_held(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    assert world.in_bucket() == 779
    world.workers[0].close()
    assert [charge.cost for charge in world.store.settled] == [-20]


def test_a_forked_child_holds_nothing(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    world.workers[0].after_fork()
    assert not world.take(hot()).leased


def test_an_outage_is_no_reason_to_hold_anything(world: World) -> None:
    world.warm(20)
    world.store.is_degraded = True
    world.wait(LEASE)
    decision = world.take(hot())
    assert (decision.allowed, decision.degraded, decision.leased) == (True, True, False)
    assert world.take(hot()).degraded


def test_a_lease_goes_on_through_an_outage(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    world.store.is_degraded = True
    assert [world.take(hot()).degraded for _ in range(21)] == [False] * 20 + [True]


def test_no_more_is_taken_ahead_than_there_is(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.memory.settle([Charge(HOT, KEY, world.in_bucket() - 6)])
    rest = world.workers[0].peek([hot(0)])
    assert rest.outcomes[0].remaining == 6
    assert world.take(hot())
    assert world.in_bucket() == 0
    assert world.store.takes[-1][0].up_to == 21
    held = 6 + world.store.takes[-1][0].rest - 1
    assert [world.take(hot()).allowed for _ in range(held + 1)] == [True] * held + [False]


def test_a_dry_run_charge_is_asked_for_all_the_same(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    dry = Charge(Limit.parse("1/minute"), OTHER)
    told = [world.take(hot(), shadow=[dry]).outcomes for _ in range(2)]
    assert [(o.shadow, o.allowed) for o in told[0]] == [(False, True), (True, True)]
    assert [(o.shadow, o.allowed) for o in told[1]] == [(False, True), (True, False)]


def test_a_time_that_is_passed_in_is_asked_about(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    world.take(hot())
    assert not world.take(hot(), now=world.now).leased


def test_all_tokens_are_noted(world: World) -> None:
    world.warm(20)
    world.wait(LEASE)
    for _ in range(11):
        world.take(hot())
    world.wait(LEASE)
    world.take(hot(lease=0.2))  # not hot in this time, so that nothing is taken ahead
    assert world.notes["spent"] >= 10
    assert world.notes["returned"] == world.notes["leased"] - world.notes["spent"]
    assert world.in_bucket() == 799


BAN = "bucket:{c}:@limiter:!ban"


def ban() -> Charge:
    return Charge(Limit.parse("1/hour"), BAN, 0, kind="ban", lasts=SECOND)


def test_a_ban_is_asked_for_although_tokens_are_held(world: World) -> None:
    world.warm()
    assert world.take(hot(), ban()).leased
    assert world.store.takes[-1] == [ban()]


def test_a_request_that_a_ban_refuses_spends_nothing_of_a_lease(world: World) -> None:
    world.warm()
    world.wait(LEASE / 2)
    world.take(hot())
    before = world.notes["spent"]
    world.memory.take([ban().refusal()], [ban()])
    decision = world.take(hot(), ban())
    assert not decision
    assert [outcome.kind for outcome in decision.outcomes if not outcome.allowed] == ["ban"]
    assert world.notes["spent"] == before
    world.workers[0].close()
    assert world.memory.peek([Charge(HOT, KEY, 0)]).outcomes[0].remaining >= HOT.capacity - 21


def test_a_refusal_that_a_lease_remembers_gives_back_no_ban(world: World) -> None:
    world.warm()
    world.memory.settle([hot(2 * HOT.capacity)])
    world.wait(LEASE)
    assert not world.take(hot())
    calls = len(world.store.takes)
    assert world.take(hot(), held=[ban()]).cached
    assert world.store.settled == []
    assert len(world.store.takes) == calls
