"""Token buckets in exact rationals, as in a textbook. They share no code with the package.

Times are in microseconds, levels in tokens, rates in tokens per microsecond. There are no parts,
ticks, stored states or rounding here: a level is exactly what the refill makes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor

MICROSECONDS = 1_000_000


@dataclass
class Oracle:
    """One bucket. It starts full."""

    capacity: int
    rate: Fraction
    at: int
    level: Fraction = field(init=False)

    def __post_init__(self) -> None:
        self.level = Fraction(self.capacity)

    @classmethod
    def refilled(cls, capacity: int, amount: Fraction, seconds: Fraction, at: int) -> Oracle:
        return cls(capacity, amount / seconds / MICROSECONDS, at)

    def move(self, now: int) -> None:
        """Let time pass. That can only fill the bucket."""
        self.level = min(self.level + self.rate * max(0, now - self.at), Fraction(self.capacity))
        self.at = now

    def give(self, tokens: int) -> None:
        self.level = min(self.level + tokens, Fraction(self.capacity))

    def up_to(self, cost: int, most: int, others: int) -> int:
        """Return how many tokens are taken if there may be more than the cost."""
        left = floor(self.level - cost - others)
        return cost + max(0, min(most - cost, left))

    def until(self, tokens: int) -> int:
        """Return the microseconds until the bucket holds so many tokens."""
        return max(0, ceil((tokens - self.level) / self.rate))


@dataclass(frozen=True)
class Answer:
    """The answer about one charge. Times are in microseconds."""

    allowed: bool
    remaining: int
    retry_after: int | None
    reset_after: int


#: A bucket and the tokens asked of it.
Asked = tuple[Oracle, int]


def ask(
    charges: Sequence[Asked], held: Sequence[Asked] = (), shadow: Sequence[Asked] = ()
) -> tuple[bool, list[Answer]]:
    """Charge all buckets or none. Return whether they were charged, and an answer for each."""
    wanted: dict[int, int] = {}
    rows = []
    for is_shadow, some in ((False, charges), (True, shadow)):
        for oracle, cost in some:
            total = wanted.get(id(oracle), 0) + cost
            enough = cost == 0 or total <= oracle.level
            if enough or not is_shadow:
                wanted[id(oracle)] = total
            rows.append((oracle, cost, enough, total))
    allowed = all(enough for _, _, enough, _ in rows[: len(charges)])
    again: dict[int, int] = {}
    if allowed:
        for oracle, cost, enough, _ in rows:
            oracle.level -= cost if enough else 0
    else:
        for oracle, cost in held:
            oracle.give(cost)
            again[id(oracle)] = again.get(id(oracle), 0) + cost
    return allowed, [
        _answer(oracle, enough, total + again.get(id(oracle), 0))
        for oracle, _, enough, total in rows
    ]


def _answer(oracle: Oracle, enough: bool, total: int) -> Answer:
    never = total > oracle.capacity
    return Answer(
        enough,
        max(0, floor(oracle.level)),
        0 if enough else None if never else oracle.until(total),
        oracle.until(oracle.capacity),
    )


@dataclass
class BanOracle:
    """A bucket of refusals, and the time at which the ban that it began is over."""

    bucket: Oracle
    lasts: int
    ends: int = 0

    def is_banned(self, now: int) -> bool:
        return now < self.ends

    def count(self, now: int) -> None:
        """Count a refusal of a client that is not banned."""
        self.bucket.move(now)
        self.bucket.level -= 1
        if self.bucket.level < 1:
            self.ends = now + self.lasts
            # Nothing refills it before the end, and then it holds one token.
            self.bucket.level, self.bucket.at = Fraction(1), self.ends


@dataclass
class SlotsOracle:
    """Places that members hold for a time."""

    capacity: int
    lasts: int
    until: dict[str, int] = field(default_factory=dict)

    def held(self, now: int) -> dict[str, int]:
        return {member: until for member, until in self.until.items() if now < until}

    def fits(self, member: str, now: int) -> bool:
        held = self.held(now)
        return member in held or len(held) < self.capacity

    def hold(self, member: str, now: int) -> None:
        self.until = {member: now + self.lasts, **self.held(now)}

    def free(self, member: str, now: int) -> None:
        self.until = self.held(now)
        self.until.pop(member, None)
