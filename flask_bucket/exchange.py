"""Exchange: one request, the tokens that it was charged, and the decisions about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flask import Request, Response

from .banning import Banning
from .bills import Bill, Item
from .bound import BoundRule
from .decisions import Charge, Decision, Outcome
from .errors import ConfigError
from .headers import Policy, policies_charged
from .holdings import Holdings
from .limits import EXACT, distinct_name
from .plans import Plan, Point

#: Tokens that fill any bucket, however deep its debt.
MORE_THAN_ANY_DEBT = EXACT - 1

#: The attribute of a request that holds everything its Limiters keep on it.
_ATTRIBUTE = "flask_bucket"


@dataclass(slots=True)
class Exchange:
    """One request and one Limiter."""

    plan: Plan
    #: The part that it shares with those of the other Limiters.
    shared: Shared
    #: Whether a request filter let it pass without any limit.
    filtered: bool = False
    #: The latest decision.
    decision: Decision | None = None
    #: The decision that stands if the view goes on after a refusal within it.
    standing: Decision | None = None
    #: The tokens taken so far, each with the rule that asked for them.
    taken: list[Item] = field(default_factory=list)
    #: The real cost, if the view said it.
    real_cost: int | None = None
    #: The response of on_breach, if a framework may have put another in its place.
    answer: Response | None = None
    #: Whether the view raised an exception that nobody handled.
    crashed: bool = False
    #: Whether any of the tokens taken are given back as a rule.
    returns: bool = False
    #: The answer of each rule's deduct_when.
    deducts: dict[BoundRule, bool] = field(default_factory=dict)
    #: The slots that it holds; None if it was never charged any.
    holdings: Holdings | None = None
    #: Whether a body is still to be sent, which costs tokens or holds slots.
    streams: bool = False
    #: The bans that it was checked for; None if there are none.
    banning: Banning | None = None
    #: All charges, taken or not, by key; None if clients are not told policies.
    charged: dict[str, Charge] | None = None

    def due(self, bill: Bill, held: Sequence[Charge]) -> tuple[Bill, Sequence[Charge]]:
        """Return the part of a bill that is due, and the held charges, where there are bans."""
        if self.banning is None:
            self.banning = Banning()
        return self.banning.due(bill), [*held, *self.banning.held(bill)]

    def held(self, point: Point) -> Sequence[Charge]:
        """Return the charges that a refusal at a point gives back."""
        if not point.ends_request or not (self.taken or self.holdings):
            return ()
        slots = [] if self.holdings is None else self.holdings.charges
        return [charge for charge, _ in self.taken] + slots

    def record(self, decision: Decision, bill: Bill, point: Point) -> None:
        """Note the decision about all charges at one point."""
        if self.charged is not None:
            self.charged |= {charge.key: charge for charge in bill.charges}
        if self.holdings is not None:
            self.holdings.note(decision, bill, point)
        if decision.allowed:
            self._take(bill, decision)
            earlier = self.standing
            decision = decision if earlier is None else earlier.followed_by(decision)
        elif point.ends_request:
            self.taken.clear()  # given back in the same call
        self.decision = decision
        if decision.allowed or point.ends_request:
            self.standing = decision

    def _take(self, bill: Bill, decision: Decision) -> None:
        """Note the charges that were taken, and from where."""
        items = bill.items
        if bill.shadow or decision.degraded or decision.leased:
            if not decision.outcomes:
                return  # nobody counted
            items = tuple(
                leased if outcome.taken_from == "lease" else (charge.taken_as(outcome), bound)
                for (charge, bound), leased, outcome in zip(
                    items, bill.leased_items, decision.outcomes, strict=True
                )
                if outcome.allowed
            )
        if bill.asks_slots:
            items = tuple(item for item in items if item[0].kind != "slot")
        if bill.bans:
            items = tuple(item for item in items if item[0].kind != "ban")
        self.taken += items
        self.returns = self.returns or bill.returns

    def decision_for_headers(self, response: Response) -> Decision | None:
        """Return the decision that a response's headers tell.

        If the view went on after a refusal within it, that is the decision before it. Flask does
        not say whether the view or an error handler made a response, so the status tells.
        """
        if response.status_code < 400:
            return self.standing
        return self.decision if self.banning is None else self.banning.told(self.decision)

    def corrections(self, response: Response | None) -> list[Charge]:
        """Return the charges that settle the request. Each call returns those that are new.

        :param response: the response to ask deduct_when about; None once that was asked.
        """
        corrections: list[Charge] = []
        refused = self.shared.refused  # by another Limiter, or there would be nothing to correct
        if self.real_cost is None and not refused and not self.returns:
            return corrections
        for i, (charge, bound) in enumerate(self.taken):
            cost = charge.cost
            if self.real_cost is not None and self._settles(bound):
                cost = self.real_cost
            if refused or not self._deducts(bound, response):
                cost = 0
            if cost != charge.cost:
                corrections.append(replace(charge, cost=cost - charge.cost))
                self.taken[i] = (replace(charge, cost=cost), bound)
        self._correct(corrections)
        return corrections

    def settlement(self, response: Response | None) -> list[Charge]:
        """Return the charges that close the request: corrections, and slots to be given back.

        :param response: None once its body is over.
        """
        charges = self.corrections(response)
        if self.holdings is not None and not self.streams:
            charges += self.holdings.give_back()
        return charges

    def forgiven(self) -> list[Charge]:
        """Return the charges that fill the buckets of the view's own limits.

        Tokens taken from them for this request are not given back a second time.
        """
        refills: list[Charge] = []
        for i, (charge, bound) in enumerate(self.taken):
            if bound.source == "view" and bound.rule.scope is None:
                refills.append(replace(charge, cost=-MORE_THAN_ANY_DEBT))
                self.taken[i] = (replace(charge, cost=0), bound)
        self._correct(refills)
        return refills

    def _correct(self, corrections: list[Charge]) -> None:
        """Let the decisions tell the balances after corrections."""
        if corrections and self.decision is not None:
            self.decision = self.decision.settled(corrections)
            self.standing = self.standing and self.standing.settled(corrections)

    def _deducts(self, bound: BoundRule, response: Response | None) -> bool:
        """Return whether a rule keeps its tokens. It is asked once, and a crash keeps them."""
        deduct_when = bound.deduct_when
        if deduct_when is None:
            return True
        if response is not None and not self.crashed and bound not in self.deducts:
            self.deducts[bound] = _checked(deduct_when(response), deduct_when)
        return self.deducts.get(bound, True)

    def _settles(self, bound: BoundRule) -> bool:
        """Return whether the real cost is this limit's. Other limits count requests.

        Limits with a cost of their own measure something. If no limit has one, all but the
        application's are settled: a 10/minute next to a budget of tokens must not be charged
        hundreds.
        """
        if any(b.cost != 1 for _, b in self.taken):
            return bound.cost != 1
        return bound.source != "application" or all(
            b.source == "application" for _, b in self.taken
        )


def _checked(deducts: object, deduct_when: Callable[..., Any]) -> bool:
    if not isinstance(deducts, bool):
        raise ConfigError(
            f"deduct_when ({getattr(deduct_when, '__qualname__', deduct_when)}) returned "
            f"{deducts!r}; expected True to keep the tokens, or False to give them back."
        )
    return deducts


@dataclass(slots=True)
class Shared:
    """The state that the Limiters of an application share about one request."""

    #: Whether any Limiter refused the request.
    refused: bool = False
    #: The outcome that the rate headers tell, over all Limiters, and the name of its Limiter.
    shown: Outcome | None = None
    shown_by: str = ""

    def should_show(self, name: str, outcome: Outcome) -> bool:
        """Return whether the rate headers tell this outcome, and not another Limiter's.

        The same Limiter may ask again: Flask makes a second response if a hook fails on the first.
        """
        shown = None if self.shown_by == name else self.shown
        if shown is not None and not outcome.binds_more_than(shown):
            return False
        self.shown, self.shown_by = outcome, name
        return True


@dataclass(slots=True)
class Exchanges:
    """Everything that the Limiters of an application keep on one request.

    It is kept on the request itself: an application context, and ``g`` with it, may be shared by
    several requests. There is no circle of references, so that all is freed with the request,
    without the garbage collector.
    """

    by_limiter: dict[str, Exchange] = field(default_factory=dict)
    shared: Shared = field(default_factory=Shared)

    def policies(self) -> dict[str, Policy]:
        """Return the policies of all charges of the request, by all Limiters."""
        taken: set[str] = set()
        # First those of the plans, since they are the same with every request.
        named = [
            (x.charged or {}, {end: distinct_name(n, taken) for end, n in x.plan.policies.items()})
            for x in self.by_limiter.copy().values()
        ]
        policies: dict[str, Policy] = {}
        for charged, names in named:
            policies |= policies_charged(charged.copy().values(), names, taken)
        return policies


def exchanges_of(req: Request) -> Exchanges:
    """Return the exchanges of a request. At first there are none."""
    kept: Exchanges | None = req.__dict__.get(_ATTRIBUTE)
    if kept is None:
        kept = req.__dict__.setdefault(_ATTRIBUTE, Exchanges())
    return kept
