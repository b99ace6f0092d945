"""The reference bucket: the arithmetic of a token bucket in whole numbers.

Pure functions of states, charges and the time: no clock, no lock, no I/O. This is the
specification of ``bucket.lua``, the oracle that tests hold against it, and what the in-process
store runs on. Times are in microseconds. Balances are in parts of a token (``Limit.scale``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .decisions import Charge, Decision, Outcome
from .limits import EXACT, SECOND, Limit

#: A clock that is behind a bucket by no more than this is late; by more, it was set back.
STEP_TOLERANCE = SECOND

#: How much longer than the time to full a bucket is kept, in milliseconds.
TTL_MARGIN = 60_000


@dataclass(frozen=True, slots=True)
class State:
    """A bucket as it is stored. An absent one is full."""

    #: The balance in parts; below zero after settling more than there was.
    tokens: int
    #: Microseconds up to which refills are in the balance.
    last_refill: int
    #: Parts in a token when this was written; a changed limit may count in others.
    scale: int


@dataclass(frozen=True, slots=True)
class Judged:
    """One charge, judged."""

    charge: Charge
    shadow: bool
    affordable: bool
    #: Tokens that the request asks of the bucket, up to and with this charge: what was held and
    #: is given back must be taken again, so a wait that left it out would end in a refusal.
    wanted: int
    #: The bucket after the call.
    state: State


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one call decided, and the states that it must store."""

    allowed: bool
    judged: tuple[Judged, ...]
    writes: Mapping[str, State]


def refresh(limit: Limit, state: State | None, now: int) -> tuple[State, bool]:
    """Return the bucket as it stands at `now`, and whether the clock was found set back."""
    if state is None:
        return State(limit.full, now, limit.scale), False
    tokens = _bounded(_rescale(state.tokens, state.scale, limit.scale), limit)
    elapsed = now - state.last_refill
    if elapsed < -STEP_TOLERANCE:
        # A failover or a reset clock. Start over from this clock's time, or the client would
        # be locked out until the old time is reached; mint nothing for the step.
        return State(tokens, now, limit.scale), True
    if elapsed < 0:
        # A late timestamp: refilling from it as well would mint the same time twice.
        return State(tokens, state.last_refill, limit.scale), False
    ticks = elapsed // limit.tick
    if ticks * limit.step >= limit.full - tokens:
        return State(limit.full, now, limit.scale), False
    # Only whole ticks are used up; what remains of this one counts towards the next.
    return (
        State(tokens + ticks * limit.step, state.last_refill + ticks * limit.tick, limit.scale),
        False,
    )


def wait(limit: Limit, state: State, now: int, cost: int) -> int | None:
    """Return the microseconds from `now` until a refreshed bucket affords `cost`; None if never."""
    if cost > limit.capacity:
        return None
    if cost == 0:
        return 0
    return _time_to(limit, cost * limit.scale, state.tokens, state.last_refill, now)


def ttl(limit: Limit, state: State) -> int:
    """Return for how many milliseconds a bucket must be kept: until it is surely full.

    At most 285,000 years, the longest that the script counts exactly.
    """
    ticks = -(-(limit.full - state.tokens) // limit.step)
    return min(-(-ticks * limit.tick // 1000) + TTL_MARGIN, EXACT - 1)


def take(
    states: Mapping[str, State],
    charges: Sequence[Charge],
    now: int,
    *,
    held: Sequence[Charge] = (),
    shadow: Sequence[Charge] = (),
) -> Verdict:
    """Charge all buckets, or none.

    :param states: the stored buckets by key.
    :param charges: what must be affordable, each and all of it.
    :param held: what was taken earlier for the same request: given back if this is refused.
    :param shadow: what is taken if affordable, once `charges` are, and refuses nothing.
    """
    buckets = _Buckets(states, now)
    judged = [buckets.judge(charge, shadow=False) for charge in charges]
    allowed = all(affordable for _, _, affordable, _ in judged)
    judged += [buckets.judge(charge, shadow=True) for charge in shadow]
    for charge in held:
        buckets.look(charge)
    again: dict[str, int] = {}
    if allowed:
        for charge, _, affordable, _ in judged:
            if affordable:
                buckets.add(charge, -charge.cost)
    else:
        for charge in held:
            buckets.add(charge, charge.cost)
            again[charge.key] = again.get(charge.key, 0) + charge.cost
    return Verdict(
        allowed,
        tuple(
            Judged(row, dry, enough, wanted + again.get(row.key, 0), buckets.seen_by(row))
            for row, dry, enough, wanted in judged
        ),
        buckets.writes(),
    )


def settle(states: Mapping[str, State], charges: Sequence[Charge], now: int) -> Mapping[str, State]:
    """Apply costs after the fact, without asking; return the states to store.

    A positive cost may leave a debt, a negative one gives back, never above the capacity.
    """
    buckets = _Buckets(states, now)
    for charge in charges:
        buckets.look(charge)
    for charge in charges:
        buckets.add(charge, -charge.cost)
    return buckets.writes()


def decision(verdict: Verdict, now: int) -> Decision:
    """Say in seconds and whole tokens what was decided."""
    outcomes = (
        outcome(
            j.charge,
            j.shadow,
            0 if j.affordable else j.wanted,
            j.state.tokens,
            j.state.last_refill,
            now,
        )
        for j in verdict.judged
    )
    return Decision.of(tuple(outcomes), now)


def outcome(
    charge: Charge,
    shadow: bool,
    wanted: int,
    tokens: int,
    last_refill: int,
    now: int,
) -> Outcome:
    """Say in seconds and whole tokens what became of one charge.

    :param wanted: tokens that its call asked of the bucket, up to and with this charge; 0 if
        that was affordable.
    :param tokens: the balance after the call, in parts.
    """
    limit = charge.limit
    waits: int | None = 0
    if wanted:
        waits = None
        if wanted <= limit.capacity:
            # Another limit of the same key may have refilled the bucket since this was refused:
            # no wait at all would look as if it had been allowed.
            waits = _time_to(limit, wanted * limit.scale, tokens, last_refill, now) or 1
    full_in = _time_to(limit, limit.full, tokens, last_refill, now)
    return Outcome.of(charge, shadow, tokens, waits, full_in)


def _time_to(limit: Limit, balance: int, tokens: int, last_refill: int, now: int) -> int:
    """Return the microseconds from `now` until a refreshed bucket has a balance."""
    if tokens >= balance:
        return 0
    return -(-(balance - tokens) // limit.step) * limit.tick - (now - last_refill)


class _Buckets:
    """The buckets of one call: all of them looked at, then charged, then written together."""

    def __init__(self, states: Mapping[str, State], now: int) -> None:
        #: What is stored; absent ones come in once they are charged.
        self._states = dict(states)
        #: Each as the last charge that looked at it saw it, and that charge's limit.
        self._seen: dict[str, tuple[State, Limit]] = {}
        self._now = now
        self._wanted: dict[str, int] = {}
        self._changed: set[str] = set()

    def look(self, charge: Charge) -> State:
        """Return the bucket as it stands now; an absent one is full for whoever looks."""
        known = self._states.get(charge.key)
        state, rebased = refresh(charge.limit, known, self._now)
        if known is not None:
            self._states[charge.key] = state
        if rebased:
            self._changed.add(charge.key)
        self._seen[charge.key] = state, charge.limit
        return state

    def judge(self, charge: Charge, *, shadow: bool) -> tuple[Charge, bool, bool, int]:
        """Look at a bucket, and say whether it affords this and what was asked of it before."""
        state = self.look(charge)
        wanted = self._wanted.get(charge.key, 0) + charge.cost
        affordable = charge.cost == 0 or (
            wanted <= charge.limit.capacity and wanted * charge.limit.scale <= state.tokens
        )
        if affordable or not shadow:
            self._wanted[charge.key] = wanted
        return charge, shadow, affordable, wanted

    def add(self, charge: Charge, tokens: int) -> None:
        """Add whole tokens (take them, when negative), within the bucket's bounds."""
        state, limit = self._seen[charge.key]
        if tokens == 0 or (tokens > 0 and charge.key not in self._states):
            return
        balance = _bounded(state.tokens + tokens * limit.scale, limit)
        state = State(balance, state.last_refill, limit.scale)
        self._states[charge.key] = state
        self._seen[charge.key] = state, limit
        self._changed.add(charge.key)

    def seen_by(self, charge: Charge) -> State:
        """Return the bucket after the call, in the parts of this charge's limit."""
        state, limit = self._seen[charge.key]
        return state if limit is charge.limit else refresh(charge.limit, state, self._now)[0]

    def writes(self) -> dict[str, State]:
        """Return the states to store."""
        return {key: self._states[key] for key in self._changed}


def _rescale(tokens: int, old: int, new: int) -> int:
    """Carry a balance over to the parts of a changed limit, never adding anything."""
    return tokens if old == new else tokens * new // old


def _bounded(tokens: int, limit: Limit) -> int:
    """Keep a balance at or below full, and a debt within what the script counts exactly."""
    return max(min(tokens, limit.full), limit.full - (EXACT - 1))
