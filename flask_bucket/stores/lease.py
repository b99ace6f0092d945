"""Lease: the tokens of one bucket that a process took ahead, and how many it uses."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..decisions import Charge, Outcome
from ..limits import SECOND, Limit

#: All workers together hold at most this part of a bucket: one token in so many.
PART = 4

#: A limit that refills fewer tokens than this in a lease's time is never leased.
FEWEST = 4

#: With this many requests in a lease's time, a bucket is hot. Others are charged as usual.
HOT = 2


def share_of_worker(limit: Limit, seconds: float, workers: int | None) -> int:
    """Return how many tokens of a limit a worker may hold; 0 if it is never leased.

    :param seconds: the lease's time.
    :param workers: all workers on all machines; None if their number is not known.
    """
    if not workers or limit.rate * seconds < FEWEST:
        return 0
    share = limit.capacity // (PART * workers)
    return share if share >= HOT else 0


@dataclass(slots=True)
class Lease:
    """One bucket: the tokens that this process holds, and how many it uses."""

    limit: Limit
    #: Seconds for which tokens are taken ahead.
    seconds: float
    #: The most tokens to hold, including those of calls under way.
    most: int
    #: Tokens held. From `until` on they are a rest: the next call gives them back.
    tokens: int
    until: float = 0.0
    #: Tokens that calls under way give back or may bring.
    under_way: int = 0
    #: The period in which use is counted now, and the use in it and in the one before.
    count_until: float = 0.0
    used: int = 0
    used_before: int = 0
    requests: int = 0
    requests_before: int = 0
    #: Of the store's latest answer: its time on the store's clock, when it came, the tokens left in
    #: the bucket, and when the bucket is full.
    told_at: int = 0
    answered: float = 0.0
    balance: int = 0
    full_at: float = 0.0
    #: The store's latest refusal, until when it is repeated, and the least cost it holds for.
    refusal: Outcome | None = None
    refused_until: float = 0.0
    #: Seconds in which a token is refilled.
    refill_time: float = field(init=False)

    def __post_init__(self) -> None:
        self.refill_time = float(1 / self.limit.rate)

    def serves(self, charge: Charge) -> bool:
        """Return whether a charge is of the same limit, with the same time of a lease."""
        same = self.limit is charge.limit or self.limit == charge.limit
        return same and self.seconds == charge.lease

    def answer(self, charge: Charge, clock: float) -> Outcome | None:
        """Answer a charge from the tokens held, or with the latest refusal; None: neither does."""
        if clock >= self.count_until:
            self._count_anew(clock)
        self.requests += 1
        cost = charge.cost
        if clock < self.until and cost <= self.tokens:
            self.tokens -= cost
            self.used += cost
            return self._spent(charge, clock)
        return self._repeated(charge, clock)

    def _count_anew(self, clock: float) -> None:
        """Begin a new period of use."""
        follows = clock < self.count_until + self.seconds
        self.used_before = self.used if follows else 0
        self.requests_before = self.requests if follows else 0
        self.used = self.requests = 0
        self.count_until = clock + self.seconds

    @property
    def is_hot(self) -> bool:
        """Whether there were enough requests in the last lease's time."""
        return max(self.requests, self.requests_before) >= HOT

    def ask(self, charge: Charge) -> Charge:
        """Return the charge for a call: it gives back the rest, and takes ahead if that is due."""
        rest, self.tokens = self.tokens, 0
        extra = 0
        if self.is_hot:
            extra = max(0, min(max(self.used, self.used_before), self.most - self.under_way))
        asked = replace(charge, up_to=charge.cost + extra, rest=rest)
        self.under_way += _under_way(asked)
        return asked

    def landed(self, asked: Charge) -> None:
        """Note that a call is over, answered or not. A rest is sent back only once."""
        self.under_way -= _under_way(asked)

    def note_answer(self, asked: Charge, outcome: Outcome, now: int, sent: float, at: float) -> int:
        """Hold the tokens that a call brought; return their number.

        :param sent: when the call was sent. The lease's time counts from there.
        """
        self.told_at, self.answered = now, at
        self.balance, self.full_at = outcome.remaining, at + outcome.reset_after
        if not outcome.allowed and self.is_hot:
            self.refusal, self.refused_until = outcome, sent + self.seconds
        if not outcome.taken:
            return 0
        extra = outcome.taken - asked.cost
        self.used += asked.cost
        until = sent + self.seconds
        self.until = min(self.until, until) if self.tokens else until
        self.tokens += extra
        return extra

    def put_back(self, tokens: int) -> int:
        """Hold tokens again; return those for which there is no room."""
        fitting = max(0, min(tokens, self.most - self.tokens - self.under_way))
        self.tokens += fitting
        self.used -= fitting
        return tokens - fitting

    def tell(self, outcome: Outcome) -> Outcome:
        """Return an outcome of the store with the tokens held here added."""
        held, taken = self.tokens, outcome.taken and outcome.cost
        outcome = outcome.settled(-held)._replace(taken=taken, ahead=held)
        wait = outcome.retry_after
        if not outcome.allowed and wait is not None and self.refusal is not None:
            outcome = outcome._replace(retry_after=max(wait, self.seconds))
        return outcome

    def _spent(self, charge: Charge, clock: float) -> Outcome:
        """Return the outcome of a charge that was taken from the tokens held."""
        limit, cost, held = self.limit, charge.cost, self.tokens
        remaining = min(limit.capacity, self.balance + held)
        reset = max(0.0, self.full_at - held * self.refill_time - clock)
        return Outcome(
            limit, charge.key, cost, True, remaining, 0.0, reset, False, "lease", "rate", cost
        )

    def _repeated(self, charge: Charge, clock: float) -> Outcome | None:
        """Return the latest refusal for a charge, if it holds."""
        refusal = self.refusal
        if refusal is None or clock >= self.refused_until or charge.cost < refusal.cost:
            return None
        limit, elapsed, wait = self.limit, clock - self.answered, refusal.retry_after
        if charge.cost > limit.capacity:
            wait = None
        elif wait is not None:
            more = (charge.cost - refusal.cost) * self.refill_time
            wait = max(wait - elapsed, self.refused_until - clock) + more
        reset_after = max(0.0, refusal.reset_after - elapsed)
        remaining = min(refusal.remaining, max(0, charge.cost - 1))
        return refusal._replace(
            cost=charge.cost,
            remaining=remaining,
            retry_after=wait,
            reset_after=reset_after,
        )

    def store_time(self, clock: float) -> int:
        """Return the microseconds on the store's clock."""
        return self.told_at + round((clock - self.answered) * SECOND)


def _under_way(asked: Charge) -> int:
    """Return the tokens that a call gives back or may bring: one after the other."""
    return max(asked.rest, (asked.up_to or 0) - asked.cost)
