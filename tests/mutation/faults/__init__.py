"""The faults. Each replaces text that occurs exactly once in its file.

A fault in the script alone, or in the reference alone, makes the two disagree. The same fault in
both is a fault of the specification, and only the oracle in exact rationals can find it.
"""

from __future__ import annotations

from tests.mutation.faults.balances import CHANGES, CLOCK, JUDGING, REFILL, WAITS
from tests.mutation.faults.calls import REPLY, SETTLING, SEVERAL, STORING
from tests.mutation.faults.kinds import BANS, UP_TO
from tests.mutation.faults.slots import AT_ONCE

FAULTS = (
    *(*REFILL, *JUDGING, *WAITS, *CLOCK, *CHANGES, *SEVERAL, *SETTLING, *STORING),
    *(*BANS, *UP_TO, *AT_ONCE, *REPLY),
)
