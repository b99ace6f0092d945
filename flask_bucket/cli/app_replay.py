"""Replay of access logs through an application's own limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ..bills import Item
from ..decisions import Charge, Decision
from ..decorators import Decoration, DispatchLimit
from ..enforcing import Enforcer
from ..plans import BEFORE, Point
from ..stores.memory import MemoryStore
from .log_facts import Evidence, LogFacts
from .routed import Routed, Target

#: The kinds of charges that are not replayed, and why.
_LEFT_OUT = {
    "slot": "How long requests run: limits on requests at once are left out.",
    "ban": "Who was banned when the log began: bans are left out.",
}

#: Bills that are kept: those of the clients and targets seen last.
_KEPT = 10_000


@dataclass(slots=True)
class Tally:
    """Requests that were counted, and how many of them were refused."""

    requests: int = 0
    refused: int = 0

    def count(self, allowed: bool) -> None:
        self.requests += 1
        self.refused += not allowed


@dataclass(frozen=True, slots=True)
class LimitOf:
    """A limit, and the endpoint that it was charged for."""

    endpoint: str | None
    limiter: str
    limit: str
    name: str
    source: str
    #: Whether it refuses nothing.
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Due:
    """The charges of one client for one target, which are the same each time."""

    charges: tuple[Charge, ...]
    shadow: tuple[Charge, ...]
    #: The limit of each outcome.
    limits: tuple[LimitOf, ...]
    #: The charges that may be given back, by their place among the outcomes.
    returns: tuple[tuple[int, Charge, Callable[..., Any]], ...]


@dataclass(slots=True)
class AppReplay:
    """Charges requests to the limits of an application's Limiters, in memory.

    All limits of a request are one decision: a refusal takes nothing from any of them.
    """

    enforcers: Mapping[str, Enforcer]
    evidence: Evidence
    total: Tally = field(default_factory=Tally)
    endpoints: dict[str | None, Tally] = field(default_factory=dict)
    limits: dict[LimitOf, Tally] = field(default_factory=dict)
    clients: Counter[str] = field(default_factory=Counter)
    refused_clients: Counter[str] = field(default_factory=Counter)
    _now: int = 0
    _store: MemoryStore = field(init=False)
    _due_of: Callable[[Target, str, str], Due] = field(init=False)

    def __post_init__(self) -> None:
        self._store = MemoryStore(lambda: self._now)
        self._due_of = lru_cache(maxsize=_KEPT)(self._due)

    def charge(self, request: Routed) -> bool:
        """Charge a request that comes after all others so far; return whether it is allowed."""
        self._now = request.at
        due = self._due_of(request.target, request.address, request.user)
        decision = self._store.take(due.charges, shadow=due.shadow, now=request.at)
        for limit, outcome in zip(due.limits, decision.outcomes, strict=True):
            self.limits.setdefault(limit, Tally()).count(outcome.allowed)
        self._give_back(due, decision, request)
        self.total.count(decision.allowed)
        self.endpoints.setdefault(request.target.endpoint, Tally()).count(decision.allowed)
        client = self.evidence.address(request.address)
        self.clients[client] += 1
        if not decision.allowed:
            self.refused_clients[client] += 1
        return decision.allowed

    def _give_back(self, due: Due, decision: Decision, request: Routed) -> None:
        """Give back the tokens that the status of the response does not cost."""
        if decision.allowed:
            returned = [
                charge.given_back()
                for n, charge, deduct_when in due.returns
                if decision.outcomes[n].allowed
                and not self.evidence.deducts(deduct_when, request.status)
            ]
            if returned:
                self._store.settle(returned, now=request.at)

    def _due(self, target: Target, address: str, user: str) -> Due:
        facts = LogFacts(self.evidence, address, user)
        enforced: list[tuple[Item, LimitOf]] = []
        dry: list[tuple[Item, LimitOf]] = []
        for limiter, enforcer in self.enforcers.items():
            if any(
                self.evidence.holds(passes, "the request filter", address)
                for passes in enforcer.filters
            ):
                continue
            if enforcer.planner.bans:
                self.evidence.assume(_LEFT_OUT["ban"])
            bill = enforcer.bills.written(self._point(enforcer, target), facts)
            for item in () if bill is None else bill.items:
                if item[0].kind != "rate":
                    self.evidence.assume(_LEFT_OUT[item[0].kind])
                    continue
                (dry if item[1].shadow else enforced).append(
                    (item, _limit_of(target, limiter, item))
                )
        everything = enforced + dry
        returns = [
            (n, charge, bound.deduct_when)
            for n, ((charge, bound), _) in enumerate(everything)
            if bound.deduct_when is not None
        ]
        return Due(
            tuple(charge for (charge, _), _ in enforced),
            tuple(charge for (charge, _), _ in dry),
            tuple(limit for _, limit in everything),
            tuple(returns),
        )

    def _point(self, enforcer: Enforcer, target: Target) -> Point:
        """Return all rules of a target as if they were charged together."""
        points = enforcer.planner.plan(target.endpoint, target.method).points
        return Point(
            BEFORE,
            tuple(
                bound
                for point in points
                if target.reached_view or not isinstance(point.place, (Decoration, DispatchLimit))
                for bound in point.bounds
            ),
        )


def _limit_of(target: Target, limiter: str, item: Item) -> LimitOf:
    charge, bound = item
    limit = charge.limit
    return LimitOf(target.endpoint, limiter, str(limit), limit.name, bound.source, bound.shadow)
