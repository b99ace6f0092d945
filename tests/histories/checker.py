"""Look for an order of calls that the reference bucket explains.

The server's times give the order of the answered calls. A lost call may have happened at any time
from its begin to its end, or not at all, so all of these are tried. It matters when, because a
full bucket wastes what would be refilled. So what is known of the bucket is a band: all balances
between the lowest, if the lost calls came as late as possible, and the highest, if they came as
early as possible. Every answer narrows the band. If a band has no balance left, the bucket would
not have answered so.

A band counts in single parts of a token, though a balance moves in steps of one tick's refill. So
the checker may miss a fault that is smaller than a tick's refill. It rejects nothing that a bucket
can do, as long as the server's clock is not set back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, combinations, groupby, permutations
from operator import itemgetter

from flask_bucket import bucket
from flask_bucket.bucket import State
from flask_bucket.decisions import Charge
from flask_bucket.limits import Limit
from tests.histories.history import Call, History, decided

KEY = "bucket:{a}:one:x"


class Unexplained(Exception):  # noqa: N818
    """No order of the calls explains an answer."""

    def __init__(self, call: Call, why: str) -> None:
        super().__init__(f"{why}: {call}")
        self.call = call


@dataclass(frozen=True, slots=True)
class Step:
    """The last call of an order, and those before it."""

    call: Call
    before: Step | None


@dataclass(frozen=True, slots=True)
class Band:
    """Balances that a bucket may have after an order of calls, in parts."""

    low: int
    high: int
    #: Lost calls that may still happen, but have happened in this order.
    done: frozenset[Call]
    last: Step | None

    def holds(self, other: Band) -> bool:
        return self.done == other.done and self.low <= other.low and other.high <= self.high

    def order(self) -> list[Call]:
        calls, step = [], self.last
        while step is not None:
            calls.append(step.call)
            step = step.before
        return calls[::-1]


def explain(limit: Limit, history: History) -> list[Call]:
    """Return an order of the calls that the reference bucket explains; lost ones may be missing.

    :raises Unexplained: with the first answer that no order explains.
    """
    assert limit.tick == 1, "a limit with longer ticks keeps the time too, and a band does not"
    bands = [Band(limit.full, limit.full, frozenset(), None)]
    pending: frozenset[Call] = frozenset()
    last = 0
    for now, what, calls in _events(history):
        bands = _widest(chain.from_iterable(_passed(limit, b, pending, last, now) for b in bands))
        last = now
        if what == "begins":
            pending |= {*calls}
        elif what == "ends":
            pending -= {*calls}
            bands = [Band(b.low, b.high, b.done - {*calls}, b.last) for b in bands]
        elif what == "reset":
            bands = [Band(limit.full, limit.full, b.done, b.last) for b in bands]
        else:
            bands = [*chain.from_iterable(_answered(limit, band, calls) for band in bands)]
            if not bands:
                raise Unexplained(calls[0], "no order explains this answer")
        bands = _widest(bands)
    return bands[0].order()


def _events(history: History) -> Iterator[tuple[int, str, list[Call]]]:
    """Yield what happens, in time. The answers of one microsecond come together."""
    events: list[tuple[int, int, str, list[Call]]] = []
    for call in history.lost():
        events += [(call.begun, 0, "begins", [call]), (call.ended, 3, "ends", [call])]
    for now, answered in groupby(history.answered(), decided):
        events.append((now, 1, "answers", [*answered]))
    events += [(reset, 2, "reset", []) for reset in history.resets]
    for now, _, what, calls in sorted(events, key=itemgetter(0, 1)):
        yield now, what, calls


def _passed(
    limit: Limit, band: Band, pending: frozenset[Call], last: int, now: int
) -> Iterator[Band]:
    """Yield the bands after some time, in which any of the lost calls may have happened."""
    open_calls = [call for call in pending if call not in band.done]
    for n in range(len(open_calls) + 1):
        for happened in combinations(open_calls, n):
            cost = sum(call.cost for call in happened) * limit.scale
            # The tokens of those that came early are refilled meanwhile. A cost that the bucket
            # cannot afford yet is waited for, and meanwhile the bucket is not full: so a debt
            # counts the same.
            high = _refreshed(limit, band.high - cost, last, now)
            low = max(0, _refreshed(limit, band.low, last, now) - cost)
            if high >= 0:
                order = band.last
                for call in happened:
                    order = Step(call, order)
                yield Band(min(low, high), high, band.done | {*happened}, order)


def _refreshed(limit: Limit, tokens: int, last: int, now: int) -> int:
    state, _ = bucket.refresh(limit, State(tokens, last, limit.scale), now)
    return state.tokens


def _answered(limit: Limit, band: Band, calls: list[Call]) -> Iterator[Band]:
    """Yield the bands after answers of the same microsecond, in any order of these."""
    for order in permutations(calls):
        left: Band | None = band
        for call in order:
            left = left and _narrowed(limit, left, call)
        if left is not None:
            yield left


def _narrowed(limit: Limit, band: Band, call: Call) -> Band | None:
    """Return a band after a call; None if the bucket would not have given this answer."""
    answer = call.answer
    assert answer is not None
    if not call.begun <= answer.now <= call.ended:
        return None
    left = (answer.remaining + (call.cost if answer.allowed else 0)) * limit.scale
    low, high = max(band.low, left), min(band.high, left + limit.scale - 1)
    if low > high:
        return None
    ends = [_taken(limit, tokens, call) for tokens in (low, high)]
    if any(said != (answer.allowed, answer.remaining) for said, _ in ends):
        return None
    return Band(ends[0][1], ends[1][1], band.done, Step(call, band.last))


def _taken(limit: Limit, tokens: int, call: Call) -> tuple[tuple[bool, int], int]:
    """Return what the reference bucket answers, and its balance then."""
    now = decided(call)
    states = {KEY: State(tokens, now, limit.scale)}
    decision, written = bucket.take(states, [Charge(limit, KEY, call.cost)], now)
    after = {**states, **written}[KEY]
    assert isinstance(after, State)
    return (decision.allowed, decision.outcomes[0].remaining), after.tokens


def _widest(bands: Iterable[Band]) -> list[Band]:
    """Leave out bands that lie within others, which explain every answer that these explain."""
    kept: list[Band] = []
    for band in sorted(bands, key=lambda band: band.low - band.high):
        if not any(other.holds(band) for other in kept):
            kept.append(band)
    return kept
