"""One row for each charge of a call: its role in the request, and its outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .decisions import Charge

#: *take*: must be affordable, else the request is refused. *shadow*: of a dry-run limit, which is
#: reported and refuses nothing. *held*: charged earlier in this request, and given back if it is
#: refused now; of a ban, checked earlier, so that it only counts.
Role = Literal["take", "shadow", "held"]


@dataclass(slots=True)
class Row:
    """One charge of a call, and its outcome."""

    charge: Charge
    role: Role
    #: Tokens that the bucket needs to afford the charge; 0 if it does afford it.
    needed: int = 0
    #: Tokens that were taken.
    taken: int = 0


def bans_that_count(rows: Sequence[Row]) -> list[Row]:
    """Return those bans of a call that count a refusal of their charges; none if a ban refused.

    A ban of a dry run counts the refusals of dry-run limits too.
    """
    bans = [row for row in rows if row.charge.kind == "ban"]
    banned = {row.role for row in bans if row.needed}
    counting = []
    for ban in bans:
        refused = (
            row.needed and ban.charge.key in row.charge.counts_for
            for row in rows
            if row.role == "take" or ban.role == "shadow"
        )
        if any(refused) and not banned & {"take", ban.role}:
            counting.append(ban)
    return counting
