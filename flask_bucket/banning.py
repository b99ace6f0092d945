"""Banning: which bans are checked for one request, and which count its refusal."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .bills import Bill
from .decisions import Charge, Decision, Outcome


@dataclass(slots=True)
class Banning:
    """The bans of one request. Each is checked once, and counts at most one refusal."""

    #: The keys of the bans that were checked, and are not asked again. They count later refusals.
    #: A ban of a dry run is asked at each point until it has counted, or would have refused.
    checked: set[str] = field(default_factory=set)
    #: The keys of the bans that have counted a refusal.
    counted: set[str] = field(default_factory=set)
    #: Whether a ban refused the request. Then no ban counts it.
    is_banned: bool = False
    #: The latest refusal by a ban, and the decision that the headers tell.
    _refusal: Decision | None = None
    _told: Decision | None = None

    def due(self, bill: Bill) -> Bill:
        """Return a bill without the bans that were checked or counted before."""
        if not self.checked and not self.counted and not self.is_banned:
            return bill
        due = [
            (self._countable(charge), bound)
            for charge, bound in bill.items
            if charge.kind != "ban" or charge.key not in self.checked
        ]
        dry = [item for item in due if item[1].shadow]
        return Bill.of([item for item in due if not item[1].shadow], dry)

    def held(self, bill: Bill) -> list[Charge]:
        """Return the bans of a bill that were checked before, and count a refusal of it now."""
        return [
            charge
            for charge, bound in bill.items
            if charge.kind == "ban" and charge.key in self.checked
        ]

    def note(self, decision: Decision, bill: Bill) -> list[Outcome]:
        """Note what bans decided, and return the outcomes of those that began.

        :param bill: the whole one, of which a part may have been due.
        """
        bans = [outcome for outcome in decision.outcomes if outcome.kind == "ban"]
        self.checked |= {ban.key for ban in bans if not (ban.shadow and ban.allowed)}
        self.counted |= {ban.key for ban in bans if ban.taken}
        enforced = [ban for ban in bans if not ban.shadow]
        self.is_banned |= any(not ban.allowed and not ban.taken for ban in enforced)
        binding = decision.binding
        if binding is not None and binding.kind == "ban":
            self._refusal, self._told = decision, _closed(decision, binding, bill)
        return [ban for ban in enforced if ban.taken and not ban.allowed]

    def told(self, decision: Decision | None) -> Decision | None:
        """Return the decision that headers tell. They never tell of a ban itself."""
        return self._told if decision is not None and decision is self._refusal else decision

    def _countable(self, charge: Charge) -> Charge:
        """Return a charge whose refusal counts for no ban that has counted this request."""
        if not charge.counts_for:
            return charge
        left = [key for key in charge.counts_for if key not in self.counted and not self.is_banned]
        return replace(charge, counts_for=tuple(left))


def _closed(decision: Decision, ban: Outcome, bill: Bill) -> Decision:
    """Return a refusal by a ban as its headers tell it: nothing is left until the ban is over."""
    outcomes = [
        Outcome(c.limit, c.key, c.cost, False, 0, ban.retry_after, ban.reset_after, kind=c.kind)
        for c, bound in bill.items
        if c.kind != "ban" and not bound.shadow
    ]
    return decision._replace(outcomes=tuple(outcomes))
