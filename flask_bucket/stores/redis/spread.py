"""Charges over several slots of a cluster: a call for each slot, and yet all or nothing.

No call reaches two slots. So the slots are charged one after another, in a fixed order. If a later
one refuses or fails, what the earlier ones took is given back. In between, another request may
find a bucket emptier than it will be, and be refused. No request is ever granted too much.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from ...bucket import outcome
from ...decisions import Charge, Decision, Outcome, no_negative_cost
from ...errors import StoreUnavailable
from ...rows import Row, bans_that_count
from .replies import Scattered
from .script import Reply, Script

#: Names the part of a key. Keys of the same part can be charged in one call.
PartOf = Callable[[str], Any]


@dataclass(slots=True)
class Part:
    """The charges of one call, and the reply to it."""

    charges: list[Charge] = field(default_factory=list)
    shadow: list[Charge] = field(default_factory=list)
    held: list[Charge] = field(default_factory=list)
    #: The place of each charge and dry-run charge in the whole decision.
    places: list[int] = field(default_factory=list)
    #: None until the call was made.
    reply: Reply | None = None

    @property
    def allowed(self) -> bool:
        """Whether the call was made, and all charges were affordable."""
        return self.reply is not None and not any(
            needed for needed, _, _, _ in self.reply[1][: len(self.charges)]
        )

    def taken(self) -> list[Charge]:
        """Return what the call took; of a peek, what it would take."""
        _, rows = self.reply or (0, [])
        asked = zip((*self.charges, *self.shadow), rows, strict=False)
        return [
            replace(charge, cost=taken, up_to=None) for charge, (_, taken, _, _) in asked if taken
        ]

    def outcomes(
        self, returned: Iterable[Charge] = (), held: Iterable[Charge] = ()
    ) -> dict[int, Outcome]:
        """Return the outcome of each charge, by its place in the decision.

        :param returned: what the buckets get back after the reply.
        :param held: those of them that were taken earlier: a request that is to succeed must take
            them again.
        """
        back, again = _tokens(returned), _tokens(held)
        now, rows = self.reply or (0, [])
        found = {}
        for i, charge in enumerate((*self.charges, *self.shadow)):
            needed, taken, tokens, last_refill = rows[i]
            if charge.kind == "slot":
                tokens -= back[charge.key]
            else:
                tokens = min(charge.limit.full, tokens + back[charge.key] * charge.limit.scale)
            if needed:
                needed += again[charge.key]
            if back:
                taken = 0
            dry_run = i >= len(self.charges)
            answer = needed, taken, tokens, last_refill
            found[self.places[i]] = outcome(charge, dry_run, answer, now)
        return found


class Spread:
    """Decides about charges in a call for each part, with the methods of `Script`."""

    def __init__(self, script: Script, part_of: PartOf) -> None:
        self._script = script
        self._part_of = part_of

    def take(
        self,
        charges: Sequence[Charge],
        held: Sequence[Charge],
        shadow: Sequence[Charge],
        now: int | None,
    ) -> Decision:
        """Charge all, or none. See ``Store.take``."""
        no_negative_cost((*charges, *held, *shadow))
        rows = [
            *(Row(charge, "take") for charge in charges),
            *(Row(charge, "shadow") for charge in shadow),
            *(Row(charge, "held") for charge in held if charge.kind == "ban"),
        ]
        held = [charge for charge in held if charge.kind != "ban"]
        decision = self._take(_uncounted(charges), held, _uncounted(shadow), now)
        for row, told in zip(rows, decision.outcomes, strict=False):
            row.needed = 0 if told.allowed else 1
        return self._counted(decision, rows, now)

    def _take(
        self,
        charges: Sequence[Charge],
        held: Sequence[Charge],
        shadow: Sequence[Charge],
        now: int | None,
    ) -> Decision:
        parts = _divided(self._part_of, charges, held, shadow)
        # Dry-run charges are taken only if the others are, so parts without others come last.
        judging = sorted((p for p in parts if p.places), key=lambda part: not part.charges)
        done: list[Part] = []
        refused: Part | None = None
        try:
            for part in judging:
                part.reply = self._run(b"take", part, now, part.held)
                if not part.allowed:
                    refused = part
                    break
                done.append(part)
        except StoreUnavailable:
            for part in done:
                self._give_back(part.taken(), now)
            raise
        if refused is not None:
            return self._refusal(parts, refused, now)
        return _decision(judging, _merged(part.outcomes() for part in judging))

    def peek(self, charges: Sequence[Charge], now: int | None) -> Decision:
        """Look at all. See ``Store.peek``."""
        no_negative_cost(charges)
        parts = _divided(self._part_of, _uncounted(charges))
        for part in parts:
            part.reply = self._run(b"peek", part, now)
        if all(part.allowed for part in parts):
            return _decision(parts, _merged(part.outcomes() for part in parts))
        return _decision(parts, _merged(part.outcomes(part.taken()) for part in parts))

    def settle(self, charges: Sequence[Charge], now: int | None) -> None:
        """Settle all that can be reached. See ``Store.settle``."""
        failure: StoreUnavailable | None = None
        for part in _divided(self._part_of, charges):
            try:
                self._settle(part, now)
            except StoreUnavailable as error:
                failure = error
        if failure is not None:
            raise failure

    def _run(self, mode: bytes, part: Part, now: int | None, held: Sequence[Charge] = ()) -> Reply:
        """Call the script about one part. An error tells one of its keys."""
        try:
            return self._script.run(mode, part.charges, held, part.shadow, now)
        except StoreUnavailable as error:
            error.key = next(charge.key for charge in (*part.charges, *part.shadow, *held))
            raise

    def _refusal(self, parts: Sequence[Part], refused: Part, now: int | None) -> Decision:
        """Give back what was taken and held, and say what the buckets hold then."""
        # The part that refused gave back what it held in the same call.
        others = [part for part in parts if part is not refused]
        returned = [charge for part in others for charge in (*part.taken(), *part.held)]
        asked = [part for part in others if part.reply]
        try:
            for part in others:
                if part.places and not part.reply:
                    asked += self._looked_at(part, now)
        finally:
            self._give_back(returned, now)
        outcomes = refused.outcomes()
        for part in asked:
            outcomes |= part.outcomes([*part.taken(), *part.held], part.held)
        return _decision([refused, *asked], outcomes)

    def _counted(self, decision: Decision, rows: Sequence[Row], now: int | None) -> Decision:
        """Let bans count the refusal, in a call for each: only now is it known who refused."""
        outcomes, counted = [*decision.outcomes], set[str]()
        for ban in bans_that_count(rows):
            if ban.charge.key in counted:
                continue
            counted.add(ban.charge.key)
            with suppress(StoreUnavailable):
                answer = self._script.take([ban.charge.refusal()], [ban.charge], (), now)
                for told in answer.outcomes[1:]:  # nothing if the ban has begun meanwhile
                    place = rows.index(ban)
                    told = told._replace(shadow=ban.role == "shadow")
                    outcomes[place : place + 1] = [told]
        return Decision.of(tuple(outcomes), decision.now)

    def _give_back(self, charges: Iterable[Charge], now: int | None) -> None:
        """Give back what can be: the decision stands, even if a node is lost meanwhile."""
        for part in _divided(self._part_of, [c.given_back() for c in charges if c.cost]):
            with suppress(StoreUnavailable):
                self._settle(part, now)

    # From here on something was written. So if the keys of a call are scattered, that call alone
    # is divided further; the store cannot start the whole again, as it does before.

    def _settle(self, part: Part, now: int | None) -> None:
        try:
            self._run(b"settle", part, now)
        except Scattered:
            for piece in _divided(str, part.charges):
                self._run(b"settle", piece, now)

    def _looked_at(self, part: Part, now: int | None) -> list[Part]:
        """Look at a part that is not taken because another one refused; return its pieces."""
        try:
            part.reply = self._run(b"peek", part, now)
            return [part]
        except Scattered:
            pieces = _divided(str, part.charges, part.held, part.shadow)
            pieces = [piece for piece in pieces if piece.places]
            for piece in pieces:
                piece.places = [part.places[place] for place in piece.places]
                piece.reply = self._run(b"peek", piece, now)
            return pieces


def _divided(
    part_of: PartOf,
    charges: Sequence[Charge],
    held: Iterable[Charge] = (),
    shadow: Sequence[Charge] = (),
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


def _uncounted(charges: Iterable[Charge]) -> list[Charge]:
    """Return charges whose refusals no ban counts in the same call."""
    return [replace(charge, counts_for=()) if charge.counts_for else charge for charge in charges]


def _decision(parts: Iterable[Part], outcomes: dict[int, Outcome]) -> Decision:
    now = max((part.reply[0] for part in parts if part.reply), default=0)
    return Decision.of(tuple(outcomes[place] for place in sorted(outcomes)), now)


def _merged(outcomes: Iterable[dict[int, Outcome]]) -> dict[int, Outcome]:
    return {place: one for some in outcomes for place, one in some.items()}


def _tokens(charges: Iterable[Charge]) -> Counter[str]:
    """Return the tokens of charges by key."""
    tokens: Counter[str] = Counter()
    for charge in charges:
        tokens[charge.key] += charge.cost
    return tokens
