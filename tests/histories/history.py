"""The record of the calls: when each began and ended, and its answer.

All times are in microseconds. Client and server are on one machine, so they share a clock.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Answer:
    allowed: bool
    remaining: int
    #: When the server decided, on its clock.
    now: int


@dataclass(frozen=True, slots=True)
class Call:
    begun: int
    ended: int
    cost: int
    #: None if it was lost. Then the server may have decided at any time from begin to end, or not
    #: at all.
    answer: Answer | None = None


@dataclass(frozen=True, slots=True)
class History:
    calls: list[Call] = field(default_factory=list)
    #: When the server was dead, and forgot its bucket. It decided everything before or after.
    resets: list[int] = field(default_factory=list)

    def answered(self) -> list[Call]:
        """Return the calls that were answered, in the order of the server's decisions."""
        return sorted((call for call in self.calls if call.answer), key=decided)

    def lost(self) -> list[Call]:
        return [call for call in self.calls if call.answer is None]

    def until(self, time: int) -> History:
        """Return the history up to a time at which no call was under way or lost."""
        calls = [call for call in self.calls if decided(call) < time]
        return History(calls, [reset for reset in self.resets if reset < time])

    def lives(self) -> list[History]:
        """Return the history of each life of the server: each begins with a full bucket."""
        bounds = [0, *self.resets, 2**63]
        return [History(_between(self.calls, born, died)) for born, died in pairwise(bounds)]

    def changed(self, call: Call, answer: Answer) -> History:
        """Return this history with another answer of one call."""
        other = replace(call, answer=answer)
        return replace(self, calls=[other if one is call else one for one in self.calls])

    def without(self, call: Call) -> History:
        return replace(self, calls=[one for one in self.calls if one is not call])


def _between(calls: list[Call], born: int, died: int) -> list[Call]:
    """Return the calls that were decided between two times, and the lost ones that may be."""
    answered = [call for call in calls if call.answer and born < call.answer.now <= died]
    lost = [call for call in calls if not call.answer and call.begun <= died and call.ended > born]
    return answered + [
        replace(call, begun=max(call.begun, born + 1), ended=min(call.ended, died)) for call in lost
    ]


def decided(call: Call) -> int:
    """Return when the server decided; of a lost call, when it could at the earliest."""
    return call.begun if call.answer is None else call.answer.now


def microseconds() -> int:
    return time.time_ns() // 1_000
