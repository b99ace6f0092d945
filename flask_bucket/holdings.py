"""Holdings: the slots that one request holds, and when each is given back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from secrets import token_urlsafe

from .bills import Bill
from .decisions import Charge, Decision
from .plans import Point
from .rules import Rule


@dataclass(slots=True)
class Holdings:
    """The slots of one request. A slot is given back by whoever was the first to hold it."""

    #: The request's name among the holders of a slot. It holds each slot once, however often it
    #: is charged.
    member: str = field(default_factory=lambda: token_urlsafe(12))
    #: What is held, and where in the request it was taken.
    held: list[tuple[Point, Charge]] = field(default_factory=list)
    #: What the store was asked for, and has not answered.
    asked: list[tuple[Point, Charge]] = field(default_factory=list)
    #: The blocks that were entered and not left yet: their rules, and where they were charged.
    blocks: list[tuple[Sequence[Rule], Point]] = field(default_factory=list)
    #: The context whose teardown gives them back, if it was made by hand. The end of a request
    #: that a server sent is told otherwise.
    context: int | None = None

    @property
    def charges(self) -> list[Charge]:
        """What is held, or may be."""
        return [charge for _, charge in (*self.held, *self.asked)]

    def ask(self, bill: Bill, point: Point) -> Bill:
        """Return a bill in this request's name.

        Until the store's answer is here, each slot counts as held. If the answer is lost, the
        store may count a holder, and the slot has to be given back all the same.
        """
        bill = _in_the_name_of(self.member, bill)
        held = {charge.key for charge in self.charges}
        slots = [charge for charge, _ in bill.items if charge.kind == "slot"]
        self.asked += [(point, charge) for charge in slots if charge.key not in held]
        return bill

    def note(self, decision: Decision, bill: Bill, point: Point) -> None:
        """Note the slots that a decision about a bill let the request hold."""
        keys = {charge.key for charge, _ in bill.items}
        asked = [(place, charge) for place, charge in self.asked if charge.key in keys]
        self.asked = [(place, charge) for place, charge in self.asked if charge.key not in keys]
        if decision.degraded:
            self.held += asked  # a policy decided, and the store may have counted a holder
        elif not decision.allowed and point.ends_request:
            self.held.clear()  # given back in the same call
        for (charge, _), outcome in zip(bill.items, decision.outcomes, strict=False):
            if charge.kind == "slot" and outcome.taken and decision.allowed:
                self.held.append((point, charge.taken_as(outcome)))

    def give_back(self) -> list[Charge]:
        """Return the charges that give everything back, once."""
        charges = self.charges
        self.held, self.asked = [], []
        return [charge.given_back() for charge in charges]

    def enter(self, rules: Sequence[Rule], point: Point) -> None:
        """Note that a block was entered, which holds what was taken at its point."""
        self.blocks.append((rules, point))

    def leave(self, rules: Sequence[Rule]) -> list[Charge]:
        """Return the charges that give back what a block held: the latest one of these rules."""
        entered = [point for others, point in self.blocks if others is rules]
        if not entered:
            return []
        left = entered[-1]
        self.blocks = [block for block in self.blocks if block[1] is not left]
        mine = [charge for point, charge in self.held if point is left]
        self.held = [(point, charge) for point, charge in self.held if point is not left]
        return [charge.given_back() for charge in mine]


def _in_the_name_of(member: str, bill: Bill) -> Bill:
    """Return a bill whose slots are to be held by a member."""
    items = [
        (replace(charge, member=member) if charge.kind == "slot" else charge, bound)
        for charge, bound in bill.items
    ]
    enforced = len(bill.charges)
    return Bill.of(items[:enforced], items[enforced:])
