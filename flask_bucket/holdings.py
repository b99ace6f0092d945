"""Holdings: the slots that one request holds, and when each is given back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from secrets import token_urlsafe

from .bills import Bill
from .decisions import Charge, Decision
from .plans import Point
from .rules import Rule

#: A slot's key, and where it is counted: in the store, or in the process during an outage.
Slot = tuple[str, str]

#: Where in the request a slot was taken, and its charge.
Held = tuple[Point, Charge]


@dataclass(slots=True)
class Holdings:
    """The slots of one request. The first to hold a slot gives it back.

    Threads that work for the request with copies of its context share them. So each change is one
    step of a dictionary, and needs no lock.
    """

    #: The request's name among the holders of a slot. It holds each slot once, however often it
    #: is charged.
    member: str = field(default_factory=lambda: token_urlsafe(12))
    held: dict[Slot, Held] = field(default_factory=dict)
    #: The charges that the store was asked for and has not answered.
    asked: dict[Slot, Held] = field(default_factory=dict)
    #: The blocks that were entered and not left yet: where each was charged, and its rules.
    blocks: dict[Point, Sequence[Rule]] = field(default_factory=dict)
    #: The context whose teardown gives them back, if it was made by hand. The end of a request
    #: that a server sent is told otherwise.
    context: int | None = None

    @property
    def charges(self) -> list[Charge]:
        """The slots that are held, or may be."""
        held, asked = self.held.copy(), self.asked.copy()
        return [charge for _, charge in (*held.values(), *asked.values())]

    def ask(self, bill: Bill, point: Point) -> tuple[list[Charge], list[Charge]]:
        """Return the charges of a bill in this request's name, and those of its dry-run rules.

        Until the store's answer is here, each slot counts as held. If the answer is lost, the
        store may count a holder, and the slot has to be given back all the same.
        """
        charges = [self._asked(charge, point) for charge in bill.charges]
        return charges, [self._asked(charge, point) for charge in bill.shadow]

    def _asked(self, charge: Charge, point: Point) -> Charge:
        if charge.kind != "slot":
            return charge
        charge = _charge_of(self.member, charge)
        self.asked.setdefault(_slot(charge), (point, charge))
        return charge

    def note(self, decision: Decision, bill: Bill, point: Point) -> None:
        """Note the slots that a decision about a bill let the request hold."""
        if not decision.degraded and not decision.allowed and point.ends_request:
            self.held.clear()  # given back in the same call
        for place, (charge, _) in enumerate(bill.items):
            if charge.kind != "slot":
                continue
            # Another thread of the request may have asked for the slot too, and heard earlier.
            asked = self.asked.pop(_slot(charge), None) or (point, _charge_of(self.member, charge))
            if decision.degraded:
                # A policy decided, and the store may have counted a holder.
                self.held.setdefault(_slot(charge), asked)
            if decision.allowed and decision.outcomes and decision.outcomes[place].taken:
                taken = asked[1].taken_as(decision.outcomes[place])
                self.held[_slot(taken)] = (point, taken)

    def give_back(self) -> list[Charge]:
        """Return the charges that give everything back, once."""
        charges: list[Charge] = []
        for slots in (self.held, self.asked):
            if slots:
                charges += _taken_out(slots, slots.copy())
        return charges

    def enter(self, rules: Sequence[Rule], point: Point) -> None:
        """Note that a block was entered, which holds what was taken at its point."""
        self.blocks[point] = rules

    def leave(self, rules: Sequence[Rule]) -> list[Charge]:
        """Return the charges that give back what a block held: the latest one of these rules."""
        for left, entered in reversed(self.blocks.copy().items()):
            if entered is rules and self.blocks.pop(left, None) is not None:
                held = self.held.copy().items()
                return _taken_out(self.held, [slot for slot, (point, _) in held if point is left])
        return []


def _slot(charge: Charge) -> Slot:
    return charge.key, charge.taken_from


def _taken_out(held: dict[Slot, Held], slots: Iterable[Slot]) -> list[Charge]:
    """Take slots out of what is held, and return the charges that give them back."""
    found = [held.pop(slot, None) for slot in slots]
    return [_charge_of(each[1].member, each[1], -1) for each in found if each is not None]


def _charge_of(member: str, slot: Charge, cost: int = 1) -> Charge:
    """Return the charge of a slot that a member holds or, at a cost of -1, gives back.

    It is written out because each request makes two, and ``replace`` would double their time.
    """
    return Charge(
        slot.limit,
        slot.key,
        cost,
        taken_from=slot.taken_from,
        kind="slot",
        member=member,
        lasts=slot.lasts,
        counts_for=slot.counts_for,
    )
