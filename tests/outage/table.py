"""The table of the documentation, from what the tests measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.outage.service import Seen

HEAD = """\
| fault | policy | what clients saw | worst latency | recovered after | tokens |
| --- | --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True, slots=True)
class Row:
    """The effect of one fault under one policy."""

    fault: str
    policy: str
    saw: str
    #: Seconds; None where the machine was kept busy on purpose.
    worst: float | None
    #: Seconds from the fault's end; None where the store went on deciding.
    recovered: float | None
    tokens: str

    def __str__(self) -> str:
        worst, recovered = _milliseconds(self.worst), _milliseconds(self.recovered)
        return (
            f"| {self.fault} | {self.policy} | {self.saw} | {worst} | {recovered} | {self.tokens} |"
        )


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.0f} ms"


def tokens(taken: int, granted: int) -> str:
    """Say how the tokens taken from a bucket differ from those that the store granted."""
    if taken > granted:
        return f"{taken - granted} taken, unanswered"
    if taken < granted:
        return f"{granted - taken} granted again"
    return "exact"


def saw(seen: Sequence[Seen]) -> str:
    """Name the answers that a client saw, in the order in which it first saw them."""
    counts = Counter(
        f"{one.status}" + ("" if one.decided_by_store else " without rate headers") for one in seen
    )
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} x {what}" for what, count in counts.items())


def rendered(rows: Iterable[Row]) -> str:
    return HEAD + "".join(f"{row}\n" for row in rows)
