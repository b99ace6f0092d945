"""Charge, Outcome, Decision: the questions to a store, and its answers.

Here the integers of the arithmetic become whole tokens and seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from .errors import ConfigError
from .limits import EXACT, SECOND, Limit

#: Where tokens were taken from, and where they are given back: the store's bucket, or during an
#: outage this process's own, or a lease.
TakenFrom = Literal["store", "local", "lease"]

#: The kind of a bucket: a token bucket, one that counts refusals, or a set of slots.
Kind = Literal["rate", "ban", "slot"]


@dataclass(frozen=True, slots=True)
class Charge:
    """Tokens asked of one bucket.

    :param limit: the limit that the bucket holds.
    :param key: the bucket's key in the store, already spelled (see ``flask_bucket.keys``).
    :param cost: tokens. 0 looks without taking. A negative cost gives tokens back, and is only for
        settling.
    :raises ConfigError: for a cost that is not a whole number.
    """

    limit: Limit
    key: str
    cost: int = 1
    #: Whether the tokens are usually given back, so that a refusal may soon be out of date.
    returns: bool = False
    #: Of a charge that was taken: where it is given back.
    taken_from: TakenFrom = "store"
    #: A ban must hold a token. It loses one if the request is refused, and not by a ban. A slot
    #: must be free. It is held until it is given back, or its time is over.
    kind: Kind = "rate"
    #: The most tokens to take, if more than the cost are left when all else is charged.
    up_to: int | None = None
    #: Of a charge *up to* a maximum: tokens of an earlier charge that the bucket gets back first,
    #: in any case.
    rest: int = 0
    #: Seconds for which a process may take tokens ahead; 0: not at all.
    lease: float = 0.0
    #: Who holds a slot. The same member holds at most one.
    member: str = ""
    #: Microseconds that a ban lasts, or that a slot is held at most.
    lasts: int = 0
    #: The limit's text, to be kept beside the balance for people who look at the bucket later;
    #: empty where its key or its rule tells the limit.
    noted: str = ""
    #: The keys of the bans that count it when this bucket refuses.
    counts_for: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if type(self.cost) is not int or not -EXACT < self.cost < EXACT:
            raise ConfigError(
                f"A cost is a whole number of tokens (an int below 2**53), not {self.cost!r}. "
                "Round it, or measure in smaller tokens."
            )

    def taken_as(self, outcome: Outcome) -> Charge:
        """Return this charge as it was taken, so that as much is given back in the same place."""
        if self.up_to is None and self.taken_from == outcome.taken_from:
            return self
        cost = self.cost if self.up_to is None else outcome.taken
        return replace(self, cost=cost, up_to=None, taken_from=outcome.taken_from)

    def given_back(self) -> Charge:
        """Return the charge that gives this one's tokens or slot back when it is settled."""
        return replace(self, cost=-self.cost)

    def refusal(self) -> Charge:
        """Return a charge that every bucket refuses, so that this ban counts a refusal."""
        return Charge(self.limit, self.key, self.limit.capacity + 1, counts_for=(self.key,))


class Charges(tuple[Charge, ...]):
    """Charges that other requests will make again, so that a store may prepare their call once.

    `prepared` is the one mutable value among the data of a request. It caches the call that the
    last store prepared of these charges. Threads may overwrite it at any time, so read it and write
    it whole; a lost value is prepared again.
    """

    #: The store that prepared a call, and the call. The store is compared by identity.
    prepared: tuple[object, Any] = (None, None)


def given_back(held: Iterable[Charge]) -> list[Charge]:
    """Return the charges that give back what was taken earlier. Bans keep what they counted."""
    return [charge.given_back() for charge in held if charge.kind != "ban"]


def no_negative_cost(charges: Iterable[Charge]) -> None:
    """Raise ConfigError if any of the charges would add tokens instead of taking them."""
    for charge in charges:
        if charge.cost < 0:
            raise ConfigError(
                f"A cost is at least 0, not {charge.cost}: taking must not add tokens. "
                "Use settle() to give tokens back."
            )


class Outcome(NamedTuple):
    """The result of one charge.

    A named tuple, because every request makes some: a frozen dataclass takes four times as long.
    """

    #: The limit that the bucket holds.
    limit: Limit
    #: The bucket's key in the store.
    key: str
    #: Tokens asked for.
    cost: int
    #: Whether the bucket could afford the cost.
    allowed: bool
    #: Whole tokens left, from 0 to the capacity.
    remaining: int
    #: Seconds until the cost can be afforded: 0.0 when allowed, None when it never can be.
    retry_after: float | None
    #: Seconds until the bucket is full.
    reset_after: float
    #: True for a dry-run limit, which is reported but refuses nothing.
    shadow: bool = False
    taken_from: TakenFrom = "store"
    #: ``"rate"``; ``"ban"`` if the bucket counts refusals; ``"slot"`` for requests at once.
    kind: Kind = "rate"
    #: Tokens that were taken: more than the cost if the charge was one *up to* a maximum. Of a
    #: slot, 1 unless its member held one already. Of a ban, 1 if it counted the refusal; then it
    #: begins with this refusal if it is not allowed.
    taken: int = 0
    #: Of the tokens left, those that this process took ahead: the bucket itself no longer has them.
    ahead: int = 0

    @classmethod
    def of(
        cls,
        charge: Charge,
        shadow: bool,
        tokens: int,
        wait: int | None,
        full_in: int,
        taken: int = 0,
    ) -> Outcome:
        """Round for people.

        :param tokens: the balance in parts, which settling may have left below zero.
        :param wait: microseconds until the cost can be afforded; None if never.
        :param full_in: microseconds until the bucket is full.
        :param taken: see :attr:`taken`.
        """
        return cls(
            charge.limit,
            charge.key,
            charge.cost,
            wait == 0,
            tokens // charge.limit.scale if tokens > 0 else 0,
            None if wait is None else wait / SECOND,
            full_in / SECOND,
            shadow,
            "store",
            charge.kind,
            taken,
        )

    def settled(self, tokens: int) -> Outcome:
        """Return this outcome after `tokens` more (or fewer, if negative) were taken."""
        remaining, reset_after = self.after(tokens)
        return self._replace(remaining=remaining, reset_after=reset_after)

    def after(self, tokens: int) -> tuple[int, float]:
        """Return the tokens remaining, and the seconds until the bucket is full, after `tokens`
        more were taken."""
        limit = self.limit
        remaining = min(limit.capacity, max(0, self.remaining - tokens))
        if self.kind == "slot":
            return remaining, self.reset_after
        seconds = tokens * limit.scale * limit.tick / (limit.step * SECOND)
        return remaining, max(0.0, self.reset_after + seconds)

    def binds_more_than(self, other: Outcome) -> bool:
        """Return whether a client should be told this outcome rather than the other."""
        return (self.allowed, self.remaining) < (other.allowed, other.remaining)


class Decision(NamedTuple):
    """Whether a request may go on, and everything that its client should be told.

    ``bool(decision)`` is ``decision.allowed``. To ask whether there is a decision, compare with
    None. A named tuple, as its outcomes are.
    """

    allowed: bool
    #: One for each charge, in their order; then those of dry-run limits, and of bans that were
    #: charged at an earlier point and counted this refusal.
    outcomes: tuple[Outcome, ...] = ()
    #: Seconds until the request would be allowed: 0.0 when it is, None when it never will be.
    retry_after: float | None = 0.0
    #: Microseconds on the store's clock when it decided; 0 if no store did.
    now: int = 0
    #: True when the store was out of reach and the outage policy decided.
    degraded: bool = False
    #: True when the refusal was remembered, and the store not asked.
    cached: bool = False
    #: True when any tokens were taken from a lease.
    leased: bool = False

    @classmethod
    def of(
        cls, outcomes: tuple[Outcome, ...], now: int, *, cached: bool = False, leased: bool = False
    ) -> Decision:
        """Decide from the outcomes of all charges: all are allowed, or none."""
        refused = [o for o in outcomes if not o.allowed and not o.shadow]
        if not refused:
            return cls(True, outcomes, 0.0, now, False, False, leased)
        return cls(False, outcomes, _longest_wait(refused).retry_after, now, False, cached, leased)

    @property
    def binding(self) -> Outcome | None:
        """The outcome that a client should be told; None if no limit applied.

        If the request is refused, that is the refused one with the longest wait; else the one with
        the fewest tokens remaining. Clients are never told of dry-run limits, and of bans and slots
        only when these refuse.
        """
        enforced = [
            o for o in self.outcomes if not o.shadow and (o.kind == "rate" or not o.allowed)
        ]
        if len(enforced) == 1:
            return enforced[0]
        if refused := [o for o in enforced if not o.allowed]:
            return _longest_wait(refused)
        return min(enforced, key=lambda o: (o.remaining, -o.reset_after), default=None)

    @property
    def limit(self) -> Limit | None:
        """The limit of the binding outcome; None if no limit applied."""
        binding = self.binding
        return None if binding is None else binding.limit

    @property
    def remaining(self) -> int | None:
        """The whole tokens remaining of the binding outcome; None if no limit applied."""
        binding = self.binding
        return None if binding is None else binding.remaining

    def followed_by(self, later: Decision) -> Decision:
        """Return the decision about a request that was charged again after this one."""
        return Decision(
            later.allowed,
            self.outcomes + later.outcomes,
            later.retry_after,
            later.now or self.now,
            self.degraded or later.degraded,
            leased=self.leased or later.leased,
        )

    def settled(self, corrections: Iterable[Charge]) -> Decision:
        """Return this decision after corrections to what was taken."""
        tokens: dict[str, int] = {}
        for charge in corrections:
            tokens[charge.key] = tokens.get(charge.key, 0) + charge.cost
        outcomes = tuple(o.settled(tokens[o.key]) if o.key in tokens else o for o in self.outcomes)
        return self._replace(outcomes=outcomes)

    def __bool__(self) -> bool:
        return self.allowed


def _longest_wait(refused: Sequence[Outcome]) -> Outcome:
    if len(refused) == 1:
        return refused[0]
    return max(refused, key=lambda o: float("inf") if o.retry_after is None else o.retry_after)
