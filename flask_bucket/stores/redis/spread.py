"""Charges over several slots of a cluster: a call for each, and yet all or nothing.

No call reaches two slots. So they are charged one after another, in a fixed order, and what the
earlier ones took is given back when a later one refuses or fails. Between the two, another request
may find a bucket emptier than it will be, and be refused; none is ever granted too much.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ...bucket import outcome
from ...decisions import Charge, Decision, Outcome
from ...errors import StoreUnavailable
from .replies import Scattered

#: Runs the script with a mode, charges, shadow charges, held ones, and a time.
Run = Callable[[bytes, Sequence[Charge], Sequence[Charge], Sequence[Charge], int | None], list[int]]

#: Says what a key can be charged together with: those of the same part.
PartOf = Callable[[str], Any]


@dataclass(slots=True)
class Part:
    """What is charged in one call, and what came of it."""

    charges: list[Charge] = field(default_factory=list)
    shadow: list[Charge] = field(default_factory=list)
    held: list[Charge] = field(default_factory=list)
    #: Where in the decision its outcomes belong.
    places: list[int] = field(default_factory=list)
    reply: list[int] = field(default_factory=list)

    @property
    def allowed(self) -> bool:
        """Whether there was a reply, and all charges were affordable."""
        return bool(self.reply) and not any(self.reply[1::3][: len(self.charges)])

    def taken(self) -> list[Charge]:
        """Return what this call took, or would take."""
        if not self.allowed:
            return []
        rows = zip(self.charges + self.shadow, self.reply[1::3], strict=True)
        return [charge for charge, wanted in rows if not wanted]

    def outcomes(self, back: Iterable[Charge] = (), again: Iterable[Charge] = ()) -> list[Outcome]:
        """Return what came of the charges.

        :param back: what the buckets hold again, after the reply.
        :param again: what was held, and must be taken again by a request that is to succeed.
        """
        returned, wanted_too = _by_key(back), _by_key(again)
        found = []
        for i, charge in enumerate(self.charges + self.shadow):
            wanted, tokens, last_refill = self.reply[3 * i + 1 : 3 * i + 4]
            limit = charge.limit
            tokens = min(limit.full, tokens + returned.get(charge.key, 0) * limit.scale)
            if wanted:
                wanted += wanted_too.get(charge.key, 0)
            dry = i >= len(self.charges)
            found.append(outcome(charge, dry, wanted, tokens, last_refill, self.reply[0]))
        return found


def take(
    run: Run,
    part_of: PartOf,
    charges: Sequence[Charge],
    held: Sequence[Charge],
    shadow: Sequence[Charge],
    now: int | None,
) -> Decision:
    """Charge all, or none. See ``Store.take``."""
    parts = divided(part_of, charges, shadow, held)
    # Dry-run charges are taken only if the others are, so parts that hold no others come last.
    judging = sorted((p for p in parts if p.places), key=lambda part: not part.charges)
    done: list[Part] = []
    refused: Part | None = None
    try:
        for part in judging:
            part.reply = run(b"take", part.charges, part.shadow, part.held, now)
            if not part.allowed:
                refused = part
                break
            done.append(part)
    except StoreUnavailable:
        for part in done:
            _give_back(run, part.taken(), now)
        raise
    if refused is None:
        return _decision(judging, {id(p): p.outcomes() for p in judging})
    return _refusal(run, part_of, parts, judging, refused, now)


def _refusal(
    run: Run,
    part_of: PartOf,
    parts: Sequence[Part],
    judging: Sequence[Part],
    refused: Part,
    now: int | None,
) -> Decision:
    """Give back what was taken and held, and say what the buckets hold then."""
    outcomes = {id(refused): refused.outcomes()}
    back = [c for part in parts if part is not refused for c in (*part.taken(), *part.held)]
    try:
        for part in judging:
            if not part.reply:
                outcomes[id(part)] = _look(run, part, now)
            elif part is not refused:
                outcomes[id(part)] = part.outcomes([*part.taken(), *part.held], part.held)
    finally:
        for part in divided(part_of, back, (), ()):
            _give_back(run, part.charges, now)
    return _decision(judging, outcomes)


def peek(run: Run, part_of: PartOf, charges: Sequence[Charge], now: int | None) -> Decision:
    """Look at all. See ``Store.peek``."""
    parts = divided(part_of, charges, (), ())
    for part in parts:
        part.reply = run(b"peek", part.charges, (), (), now)
    refused = not all(part.allowed for part in parts)
    outcomes = {id(p): p.outcomes(p.taken() if refused else ()) for p in parts}
    return _decision(parts, outcomes)


def settle(run: Run, part_of: PartOf, charges: Sequence[Charge], now: int | None) -> None:
    """Settle all that can be reached. See ``Store.settle``."""
    failure: StoreUnavailable | None = None
    for part in divided(part_of, charges, (), ()):
        try:
            _settle(run, part.charges, now)
        except StoreUnavailable as error:
            failure = error
    if failure is not None:
        raise failure


def divided(
    part_of: PartOf,
    charges: Sequence[Charge],
    shadow: Sequence[Charge],
    held: Sequence[Charge],
) -> list[Part]:
    """Return the parts in their fixed order."""
    parts: dict[Hashable, Part] = {}
    for i, charge in enumerate((*charges, *shadow)):
        part = parts.setdefault(part_of(charge.key), Part())
        (part.charges if i < len(charges) else part.shadow).append(charge)
        part.places.append(i)
    for charge in held:
        parts.setdefault(part_of(charge.key), Part()).held.append(charge)
    return [parts[name] for name in sorted(parts)]  # type: ignore[type-var]  # numbers or texts


def _give_back(run: Run, charges: Sequence[Charge], now: int | None) -> None:
    """Give back what can be: the decision stands, even if a node is lost meanwhile."""
    back = [Charge(c.limit, c.key, -c.cost) for c in charges if c.cost]
    if back:
        with suppress(StoreUnavailable):
            _settle(run, back, now)


# By now something was written, so that the whole cannot be begun anew key by key, as is done when
# the keys of a call turn out to be scattered.


def _settle(run: Run, charges: Sequence[Charge], now: int | None) -> None:
    try:
        run(b"settle", charges, (), (), now)
    except Scattered:
        for part in divided(str, charges, (), ()):
            run(b"settle", part.charges, (), (), now)


def _look(run: Run, part: Part, now: int | None) -> list[Outcome]:
    """Return what comes of charges that are not taken because others are refused."""
    try:
        part.reply = run(b"peek", part.charges, part.shadow, (), now)
        return part.outcomes([*part.taken(), *part.held], part.held)
    except Scattered:
        found: dict[int, Outcome] = {}
        for single in divided(str, part.charges, part.shadow, ()):
            single.reply = run(b"peek", single.charges, single.shadow, (), now)
            outcomes = single.outcomes([*single.taken(), *part.held], part.held)
            found.update(zip(single.places, outcomes, strict=True))
            part.reply = single.reply[:1]
        return [found[i] for i in sorted(found)]


def _decision(parts: Sequence[Part], outcomes: dict[int, list[Outcome]]) -> Decision:
    placed: dict[int, Outcome] = {}
    for part in parts:
        placed.update(zip(part.places, outcomes[id(part)], strict=True))
    times = [part.reply[0] for part in parts if part.reply]
    return Decision.of(tuple(placed[i] for i in sorted(placed)), max(times, default=0))


def _by_key(charges: Iterable[Charge]) -> dict[str, int]:
    costs: dict[str, int] = {}
    for charge in charges:
        costs[charge.key] = costs.get(charge.key, 0) + charge.cost
    return costs
