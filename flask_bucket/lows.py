"""Lows: buckets that have fallen low, each reported once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from threading import Lock
from typing import Final

from cachetools import LRUCache

from . import forks
from .bills import Bill, Item
from .decisions import Charge, Decision, Outcome

#: How many buckets are remembered: those seen last.
KEPT = 10_000

_REPORTED: Final = "reported"

#: A settlement took tokens, and may have taken the bucket past its mark between two charges.
_SETTLED: Final = "settled"


class Lows:
    """Tells when a bucket falls low, from answers that the store gave anyway. Thread-safe.

    Charges are atomic, so one of them, in one process, takes a bucket past its mark. Processes
    share no memory of it: a bucket that goes up and down around its mark is reported again by
    each process at most once, until it has recovered.
    """

    def __init__(self) -> None:
        self.after_fork()
        forks.watch(self)

    def after_fork(self) -> None:
        """Begin empty, with a new lock."""
        self._known: LRUCache[str, str] = LRUCache(KEPT)
        self._lock = Lock()

    def after_charge(self, bill: Bill, decision: Decision) -> list[Outcome]:
        """Return the outcomes of the buckets that a decision takes past their marks."""
        if not decision.allowed or decision.degraded:
            return []
        items = zip(bill.items, decision.outcomes, strict=True)
        with self._lock:
            return [
                outcome.settled(outcome.ahead)
                for (_, bound), outcome in items
                if bound.low and outcome.allowed and outcome.kind == "rate"
                # Tokens of a lease left the bucket with the lease's call, which was looked at.
                if outcome.taken_from == "store" and self._falls(outcome, bound.low)
            ]

    def after_settling(
        self, taken: Iterable[Item], corrections: Sequence[Charge], decision: Decision
    ) -> list[Outcome]:
        """Return the outcomes of the buckets that settling takes past their marks.

        :param taken: what the request was charged.
        :param decision: the decision about it, corrected already.
        """
        more = {charge.key for charge in corrections if charge.cost > 0}
        parts = {c.key: b.low for c, b in taken if b.low is not None and c.key in more}
        outcomes = {o.key: o for o in decision.outcomes if o.key in parts}
        with self._lock:
            return [o for key, o in outcomes.items() if self._has_fallen(o, parts[key])]

    def _falls(self, outcome: Outcome, low: Fraction) -> bool:
        """Note the tokens left by a charge; return whether it took the bucket past its mark."""
        capacity, key = outcome.limit.capacity, outcome.key
        before = outcome.remaining + outcome.cost
        if before >= capacity * (1 - low / 2):
            self._known.pop(key, None)
        mark = capacity * (1 - low)
        if outcome.remaining - outcome.ahead > mark:
            return False
        known = self._known.get(key)
        self._known[key] = _REPORTED  # if not by this process, then by another
        return known is not _REPORTED and (before > mark or known is _SETTLED)

    def _has_fallen(self, outcome: Outcome, low: Fraction) -> bool:
        """Note that a bucket was settled, and return whether that took it past its mark.

        Other requests may have taken more meanwhile. Then the next charge shows it.
        """
        known = self._known.get(outcome.key)
        falls = outcome.remaining - outcome.ahead <= outcome.limit.capacity * (1 - low)
        if known is not _REPORTED:
            self._known[outcome.key] = _REPORTED if falls else _SETTLED
        return falls and known is not _REPORTED
