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

    #: The balance in parts. It is below zero after settling more than there was.
    tokens: int
    #: Refills up to this time, in microseconds, are in the balance.
    last_refill: int
    #: Parts in a token when this was written. A changed limit may count in others.
    scale: int


def refresh(limit: Limit, state: State | None, now: int) -> tuple[State, bool]:
    """Return the bucket as it stands at `now`, and whether the clock was set back."""
    if state is None:
        return State(limit.full, now, limit.scale), False
    tokens = _bounded(_rescale(state.tokens, state.scale, limit.scale), limit)
    last_refill = state.last_refill
    elapsed = now - last_refill
    set_back = elapsed < -STEP_TOLERANCE
    if set_back:
        # A failover, or a reset clock. Start over from this clock's time, or the client would
        # be locked out until the old time is reached. Mint nothing for the step.
        last_refill = now
    elif elapsed >= 0:  # a late timestamp refills nothing: it would mint the same time twice
        ticks = elapsed // limit.tick
        if ticks * limit.step >= limit.full - tokens:
            tokens, last_refill = limit.full, now
        else:
            # Only whole ticks are used up. The rest of this one counts towards the next.
            tokens += ticks * limit.step
            last_refill += ticks * limit.tick
    return State(tokens, last_refill, limit.scale), set_back


def wait(limit: Limit, state: State, now: int, cost: int) -> int | None:
    """Return the microseconds from `now` until a refreshed bucket affords `cost`; None if never."""
    if cost > limit.capacity:
        return None
    if cost == 0:
        return 0
    return _time_to(limit, cost * limit.scale, state.tokens, state.last_refill, now)


def ttl(limit: Limit, state: State) -> int:
    """Return for how many milliseconds a bucket must be kept: until it is surely full.

    At most 285,000 years, the longest time that the script counts exactly.
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
) -> tuple[Decision, Mapping[str, State]]:
    """Charge all buckets, or none. Return the decision, and the states to store.

    :param states: the stored buckets by key.
    :param charges: what must be affordable, each and all of it.
    :param held: what was taken earlier for the same request: given back if this is refused.
    :param shadow: what is taken if affordable, once `charges` are, and refuses nothing.
    """
    buckets = _Buckets(states, now)
    asked = [*((charge, False) for charge in charges), *((charge, True) for charge in shadow)]
    needed = [buckets.judge(charge, dry_run) for charge, dry_run in asked]
    for charge in held:
        buckets.look(charge)
    allowed = not any(needed[: len(charges)])
    if allowed:
        for (charge, _), lacking in zip(asked, needed, strict=True):
            if not lacking:
                buckets.add(charge, -charge.cost)
    else:
        for charge in held:
            buckets.give_back(charge)
    outcomes = tuple(
        buckets.outcome(charge, dry_run, lacking)
        for (charge, dry_run), lacking in zip(asked, needed, strict=True)
    )
    return Decision.of(outcomes, now), buckets.writes()


def settle(states: Mapping[str, State], charges: Sequence[Charge], now: int) -> Mapping[str, State]:
    """Apply costs after the fact, without asking. Return the states to store.

    A positive cost may leave a debt. A negative one gives back, never above the capacity.
    """
    buckets = _Buckets(states, now)
    for charge in charges:
        buckets.look(charge)
    for charge in charges:
        buckets.add(charge, -charge.cost)
    return buckets.writes()


def outcome(
    charge: Charge, shadow: bool, needed: int, tokens: int, last_refill: int, now: int
) -> Outcome:
    """Say in seconds and whole tokens what became of one charge.

    :param needed: the tokens that the bucket must hold before it affords the charge; 0 if it
        did afford it.
    :param tokens: the balance after the call, in parts.
    """
    limit = charge.limit
    wait_for: int | None = 0
    if needed > limit.capacity:
        wait_for = None
    elif needed:
        # Another limit of the same key may have refilled the bucket since this was refused.
        # Without any wait it would look allowed.
        wait_for = _time_to(limit, needed * limit.scale, tokens, last_refill, now) or 1
    full_in = _time_to(limit, limit.full, tokens, last_refill, now)
    return Outcome.of(charge, shadow, tokens, wait_for, full_in)


def _time_to(limit: Limit, balance: int, tokens: int, last_refill: int, now: int) -> int:
    """Return the microseconds from `now` until a refreshed bucket has a balance."""
    if tokens >= balance:
        return 0
    return -(-(balance - tokens) // limit.step) * limit.tick - (now - last_refill)


class _Buckets:
    """The buckets of one call: all looked at and judged, then charged, then written."""

    def __init__(self, states: Mapping[str, State], now: int) -> None:
        #: The stored buckets. An absent one comes in once it is charged.
        self._states = dict(states)
        #: Each bucket as the last charge that looked at it saw it, and that charge's limit.
        self._seen: dict[str, tuple[State, Limit]] = {}
        #: Tokens that this call asks of each bucket.
        self._wanted: dict[str, int] = {}
        #: Held tokens that each bucket got back.
        self._returned: dict[str, int] = {}
        self._changed: set[str] = set()
        self._now = now

    def look(self, charge: Charge) -> State:
        """Return the bucket as it stands now. An absent one is full for whoever looks."""
        key, limit = charge.key, charge.limit
        stored = self._states.get(key)
        state, set_back = refresh(limit, stored, self._now)
        if stored is not None:
            self._states[key] = state
        if set_back:
            self._changed.add(key)
        self._seen[key] = state, limit
        return state

    def judge(self, charge: Charge, shadow: bool) -> int:
        """Return the tokens that the bucket needs to afford a charge; 0 if it does afford it."""
        state = self.look(charge)
        wanted = self._wanted.get(charge.key, 0) + charge.cost
        affordable = charge.cost == 0 or wanted * charge.limit.scale <= state.tokens
        if affordable or not shadow:
            self._wanted[charge.key] = wanted
        return 0 if affordable else wanted

    def add(self, charge: Charge, amount: int) -> None:
        """Add whole tokens, or take them if the amount is negative."""
        key = charge.key
        if amount == 0 or (amount > 0 and key not in self._states):
            return
        state, limit = self._seen[key]
        balance = _bounded(state.tokens + amount * limit.scale, limit)
        state = State(balance, state.last_refill, limit.scale)
        self._states[key] = state
        self._seen[key] = state, limit
        self._changed.add(key)

    def give_back(self, charge: Charge) -> None:
        """Give back tokens that were taken earlier for the same request."""
        self._returned[charge.key] = self._returned.get(charge.key, 0) + charge.cost
        self.add(charge, charge.cost)

    def outcome(self, charge: Charge, shadow: bool, needed: int) -> Outcome:
        """Say what became of a charge, once all are charged."""
        state, limit = self._seen[charge.key]
        if limit is not charge.limit:  # which may count in other parts
            state, _ = refresh(charge.limit, state, self._now)
        if needed:
            # What was given back must be taken again: a wait without it would end in a refusal.
            needed += self._returned.get(charge.key, 0)
        return outcome(charge, shadow, needed, state.tokens, state.last_refill, self._now)

    def writes(self) -> dict[str, State]:
        """Return the states to store."""
        return {key: self._states[key] for key in self._changed}


def _rescale(tokens: int, old: int, new: int) -> int:
    """Carry a balance over to the parts of a changed limit, never adding anything."""
    return tokens if old == new else tokens * new // old


def _bounded(tokens: int, limit: Limit) -> int:
    """Keep a balance at or below full, and a debt within what the script counts exactly."""
    return max(min(tokens, limit.full), limit.full - (EXACT - 1))
