"""The reference slots: who holds one, and until when.

Like ``bucket.py``, which decides with it, this is the specification of ``bucket.lua``. The script
keeps slots in sorted sets.
"""

from __future__ import annotations

from collections.abc import Mapping

from .decisions import Charge
from .limits import EXACT

#: When each slot that is held is free, in microseconds, by the member that holds it.
Holders = Mapping[str, int]


def last_free(holders: Holders, now: int) -> int:
    """Return when the last slot is free: `now` if none is held."""
    return max([now, *holders.values()])


class Slots:
    """The slots of one key, in one call."""

    def __init__(self, holders: Holders, now: int) -> None:
        #: Who holds a slot now. Nobody has to give back a slot whose time is over.
        self.holders = {who: free for who, free in holders.items() if free > now}
        #: Whether the holders have to be written.
        self.changed = False
        self._now = now
        #: Members that this call asks a slot for.
        self._wanted: set[str] = set()

    def look(self, charge: Charge) -> None:
        """Let nobody hold a slot for longer than the charge says."""
        latest = self._free_at(charge)
        for who, free in self.holders.items():
            if free > latest:
                # The clock was set back: without this, the slot would stay held until the old
                # time is reached.
                self.holders[who] = latest
                self.changed = True

    def affords(self, charge: Charge) -> bool:
        """Return whether the member of a charge holds a slot, or one is free for it."""
        if charge.member in self.holders or charge.member in self._wanted:
            return True
        if len(self.holders) + len(self._wanted) >= charge.limit.capacity:
            return False
        self._wanted.add(charge.member)
        return True

    def add(self, charge: Charge, amount: int) -> int:
        """Free the slot of a charge's member, or let it hold one if the amount is negative.

        No other member's slot is touched. Return 1 if the member holds one now and did not before.
        """
        holds = charge.member in self.holders
        if amount == 0 or holds == (amount < 0):
            return 0
        self.changed = True
        if holds:
            del self.holders[charge.member]
            return 0
        self.holders[charge.member] = self._free_at(charge)
        return 1

    def _free_at(self, charge: Charge) -> int:
        return min(self._now + charge.lasts, EXACT - 1)
