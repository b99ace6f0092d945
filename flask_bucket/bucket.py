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
from .rows import Role, Row, bans_that_count
from .slots import Holders, Slots, last_free

#: A time before a bucket's is late if the gap is at most this; otherwise the clock was set back.
STEP_TOLERANCE = SECOND

#: How long a bucket is kept after it is full, in milliseconds.
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


#: The value that a store keeps under a key. An absent bucket is full. Of absent slots, none is
#: held.
Kept = State | Holders

#: The answer to one charge: the tokens that the bucket must hold before it affords the charge, or
#: 0 if it did afford it; the tokens taken; the balance after the call, in parts; the last refill.
#: Of slots, the last two are how many are held, and when the last one is free.
Answer = tuple[int, int, int, int]


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


def ttl(limit: Limit, kept: Kept, now: int = 0) -> int:
    """Return for how many milliseconds a bucket must be kept: until it is surely full.

    At most 285,000 years, the longest time that the script counts exactly.

    :param now: only the time of slots depends on it.
    """
    if isinstance(kept, State):
        us = -(-(limit.full - kept.tokens) // limit.step) * limit.tick
    else:
        us = last_free(kept, now) - now
    return min(-(-us // 1000) + TTL_MARGIN, EXACT - 1)


def take(
    states: Mapping[str, Kept],
    charges: Sequence[Charge],
    now: int,
    *,
    held: Sequence[Charge] = (),
    shadow: Sequence[Charge] = (),
) -> tuple[Decision, Mapping[str, Kept]]:
    """Charge all buckets, or none. Return the decision, and the states to store.

    :param states: the stored buckets by key.
    :param charges: what must be affordable, each and all of it.
    :param held: what was taken earlier for the same request: given back if this is refused.
    :param shadow: what is taken if affordable, once `charges` are, and refuses nothing.
    """
    buckets = _Buckets(states, now)
    asked: tuple[tuple[Role, Sequence[Charge]], ...]
    asked = (("take", charges), ("shadow", shadow), ("held", held))
    rows = [Row(charge, role) for role, some in asked for charge in some]
    for row in rows:
        buckets.look(row.charge)
        if row.role != "held":
            row.needed = buckets.judge(row)
    allowed = not any(row.needed for row in rows if row.role == "take")
    for row in rows:
        if row.charge.kind == "ban":
            continue
        if row.role == "held" and not allowed:
            buckets.add(row.charge, row.charge.cost)
        elif row.role != "held" and allowed and not row.needed:
            row.taken = buckets.add(row.charge, -row.charge.cost)
    for row in rows:
        if row.charge.up_to is not None and row.role != "held" and allowed and not row.needed:
            row.taken += buckets.take_up_to(row.charge)
    for ban in bans_that_count(rows):
        buckets.count(ban)
    told = [row for row in rows if row.role != "held" or (row.charge.kind == "ban" and row.taken)]
    return Decision.of(tuple(map(buckets.outcome, told)), now), buckets.writes()


def settle(states: Mapping[str, Kept], charges: Sequence[Charge], now: int) -> Mapping[str, Kept]:
    """Apply costs after the fact, without asking. Return what to store.

    A positive cost may leave a debt. A negative one gives back, never above the capacity. Bans are
    not settled.
    """
    buckets = _Buckets(states, now)
    for charge in charges:
        buckets.look(charge)
    for charge in charges:
        if charge.kind != "ban":
            buckets.add(charge, -charge.cost)
    return buckets.writes()


def outcome(charge: Charge, shadow: bool, answer: Answer, now: int) -> Outcome:
    """Return the outcome of one charge, in seconds and whole tokens."""
    needed, taken, tokens, last_refill = answer
    limit = charge.limit
    wait_for: int | None = 0
    if charge.kind == "slot":
        # Nobody knows when a slot is given back, so a client may ask again soon.
        wait_for = SECOND if needed else 0
        free = max(0, limit.capacity - tokens) * limit.scale
        return Outcome.of(charge, shadow, free, wait_for, last_refill - now, taken)
    if needed > limit.capacity:
        wait_for = None
    elif needed:
        # Another limit of the same key may have refilled the bucket since this was refused.
        # Without any wait it would look allowed.
        wait_for = _time_to(limit, needed * limit.scale, tokens, last_refill, now) or 1
    full_in = _time_to(limit, limit.full, tokens, last_refill, now)
    if charge.kind == "ban" and wait_for:
        full_in = wait_for  # clients are told when the ban is over, not when its bucket is full
    return Outcome.of(charge, shadow, tokens, wait_for, full_in, taken)


def _time_to(limit: Limit, balance: int, tokens: int, last_refill: int, now: int) -> int:
    """Return the microseconds from `now` until a refreshed bucket has a balance."""
    if tokens >= balance:
        return 0
    return -(-(balance - tokens) // limit.step) * limit.tick - (now - last_refill)


class _Buckets:
    """The buckets of one call: all looked at and judged, then charged, then written."""

    def __init__(self, states: Mapping[str, Kept], now: int) -> None:
        #: The stored buckets. An absent one comes in once it is charged.
        self._states = dict(states)
        #: Each bucket as the last charge that looked at it saw it, and that charge's limit.
        self._seen: dict[str, tuple[State, Limit]] = {}
        #: The slots that were looked at.
        self._slots: dict[str, Slots] = {}
        #: Tokens that this call asks of each bucket.
        self._wanted: dict[str, int] = {}
        #: Held tokens that each bucket got back.
        self._returned: dict[str, int] = {}
        #: Bans that counted the refusal.
        self._counted: set[str] = set()
        self._changed: set[str] = set()
        self._now = now

    def look(self, charge: Charge) -> None:
        """Look at the bucket as it stands now. An absent bucket is full."""
        key, limit, stored = charge.key, charge.limit, self._states.get(charge.key)
        if charge.kind == "slot":
            if key not in self._slots:
                self._slots[key] = Slots(stored if isinstance(stored, Mapping) else {}, self._now)
            self._slots[key].look(charge)
            return
        found = stored if isinstance(stored, State) else None
        state, set_back = refresh(limit, found, self._now)
        if found is not None:
            self._states[key] = state
        if set_back:
            self._changed.add(key)
        self._seen[key] = state, limit
        if charge.rest:
            self._give_rest(charge)

    def judge(self, row: Row) -> int:
        """Return the tokens that the bucket needs to afford a charge; 0 if it does afford it."""
        charge, key = row.charge, row.charge.key
        if charge.kind == "slot":
            return 0 if self._slots[key].affords(charge) else 1
        state, limit = self._seen[key]
        if charge.kind == "ban":
            return 0 if state.tokens >= limit.scale else 1
        wanted = self._wanted.get(key, 0) + charge.cost
        affordable = charge.cost == 0 or wanted * limit.scale <= state.tokens
        if affordable or row.role == "take":
            self._wanted[key] = wanted
        return 0 if affordable else wanted

    def add(self, charge: Charge, amount: int) -> int:
        """Add whole tokens, or take them if the amount is negative. Return how many were taken."""
        key = charge.key
        if amount > 0:
            self._returned[key] = self._returned.get(key, 0) + amount
        if charge.kind == "slot":
            return self._slots[key].add(charge, amount)
        if amount == 0 or (amount > 0 and key not in self._states):
            return 0
        state, limit = self._seen[key]
        balance = _bounded(state.tokens + amount * limit.scale, limit)
        self._put(key, State(balance, state.last_refill, limit.scale), limit)
        return max(-amount, 0)

    def _give_rest(self, charge: Charge) -> None:
        """Give back what is left of an earlier charge. No wait counts it as taken again."""
        state, limit = self._seen[charge.key]
        if charge.key in self._states:
            tokens = _bounded(state.tokens + charge.rest * limit.scale, limit)
            self._put(charge.key, State(tokens, state.last_refill, limit.scale), limit)

    def take_up_to(self, charge: Charge) -> int:
        """Take what is left, as far as the charge may. Return how many tokens were taken."""
        state, limit = self._seen[charge.key]
        most = (charge.up_to or 0) - charge.cost
        return self.add(charge, -max(0, min(most, state.tokens // limit.scale)))

    def count(self, ban: Row) -> None:
        """Take one token for a refusal, if there is one. If it was the last, the ban begins."""
        key, (state, limit) = ban.charge.key, self._seen[ban.charge.key]
        if state.tokens < limit.scale or key in self._counted:
            return
        self._counted.add(key)
        ban.taken = 1
        state = State(state.tokens - limit.scale, state.last_refill, limit.scale)
        if state.tokens < limit.scale:
            ban.needed = 1
            # From this debt the bucket has its next token when the ban is over.
            debt = ban.charge.lasts // limit.tick * limit.step
            state = State(_bounded(limit.scale - debt, limit), self._now, limit.scale)
        self._put(key, state, limit)

    def outcome(self, row: Row) -> Outcome:
        """Return the outcome of a charge, once all are charged."""
        charge, needed = row.charge, row.needed
        if charge.kind == "slot":
            holders = self._slots[charge.key].holders
            tokens, last_refill = len(holders), last_free(holders, self._now)
        else:
            state, limit = self._seen[charge.key]
            if limit is not charge.limit:  # which may count in other parts
                state, _ = refresh(charge.limit, state, self._now)
            tokens, last_refill = state.tokens, state.last_refill
        if needed:
            # What was given back must be taken again: a wait without it would end in a refusal.
            needed += self._returned.get(charge.key, 0)
        shadow = row.role == "shadow"
        return outcome(charge, shadow, (needed, row.taken, tokens, last_refill), self._now)

    def writes(self) -> dict[str, Kept]:
        """Return what to store. Slots that nobody holds are not kept."""
        changed: dict[str, Kept] = {key: self._states[key] for key in self._changed}
        return changed | {key: s.holders for key, s in self._slots.items() if s.changed}

    def _put(self, key: str, state: State, limit: Limit) -> None:
        self._states[key] = state
        self._seen[key] = state, limit
        self._changed.add(key)


def _rescale(tokens: int, old: int, new: int) -> int:
    """Carry a balance over to the parts of a changed limit, never adding anything."""
    return tokens if old == new else tokens * new // old


def _bounded(tokens: int, limit: Limit) -> int:
    """Keep a balance at or below full, and a debt within what the script counts exactly."""
    return max(min(tokens, limit.full), limit.full - (EXACT - 1))
