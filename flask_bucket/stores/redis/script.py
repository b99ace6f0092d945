"""The script: how it is called, and how its reply is read. No other module knows the layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat

from ...bucket import Answer, outcome
from ...decisions import Charge, Charges, Decision, no_negative_cost
from ...errors import StoreUnavailable
from ..base import checked_now
from .links import Call
from .replies import FAILURES, translated

#: The time of the decision, and the answer to each charge, in the order of the arguments.
Reply = tuple[int, list[Answer]]


class Script:
    """Decides about any number of charges in one call, all of which one server must keep.

    :param prepare: makes a call that can be repeated, given the number of keys, the keys and the
        arguments.
    """

    def __init__(self, prepare: Callable[..., Call]) -> None:
        self._prepare = prepare

    def take(
        self,
        charges: Sequence[Charge],
        held: Sequence[Charge],
        shadow: Sequence[Charge],
        now: int | None,
    ) -> Decision:
        """Charge all, or none. See ``Store.take``."""
        if isinstance(charges, Charges) and now is None and not held and not shadow:
            return self._take_again(charges)
        no_negative_cost((*charges, *held, *shadow))
        reply = self.run(b"take", charges, held, shadow, now)
        return _decision(reply, charges, shadow, held)

    def peek(self, charges: Sequence[Charge], now: int | None) -> Decision:
        """Look at all. See ``Store.peek``."""
        no_negative_cost(charges)
        return _decision(self.run(b"peek", charges, now=now), charges)

    def settle(self, charges: Sequence[Charge], now: int | None) -> None:
        """Settle all. See ``Store.settle``."""
        self.run(b"settle", charges, now=now)

    def run(
        self,
        mode: bytes,
        charges: Sequence[Charge],
        held: Sequence[Charge] = (),
        shadow: Sequence[Charge] = (),
        now: int | None = None,
    ) -> Reply:
        """Return the reply to one call.

        :raises StoreUnavailable: if there is none, or it is not one of the script's.
        """
        if not (charges or held or shadow):
            return 0, []
        call = self._prepare(*arguments(mode, charges, held, shadow, now))
        return _read(call, charges, shadow, held)

    def _take_again(self, charges: Charges) -> Decision:
        """Take charges that come again, with a call that is packed once."""
        script, call = charges.prepared
        if script is not self:
            no_negative_cost(charges)
            call = self._prepare(*arguments(b"take", charges))
            charges.prepared = self, call
        return _decision(_read(call, charges), charges)


def arguments(
    mode: bytes,
    charges: Iterable[Charge],
    held: Iterable[Charge] = (),
    shadow: Iterable[Charge] = (),
    now: int | None = None,
) -> list[bytes | str | int]:
    """Return the number of keys, the keys and the arguments of a call.

    The rows of the reply are in the same order: charges, then dry-run charges, then held ones.
    """
    keys: list[str] = []
    rows: list[bytes | str | int] = []
    special = False
    for role, some in ((b"take", charges), (b"shadow", shadow), (b"held", held)):
        for charge in some:
            limit = charge.limit
            keys.append(charge.key)
            rows += (role, charge.cost, limit.capacity, limit.scale, limit.step, limit.tick)
            is_plain = charge.kind == "rate" and charge.up_to is None and not charge.noted
            special = special or not is_plain
    if special:
        _add_kinds(rows, charges, shadow, held)
    return [len(keys), *keys, mode, b"" if now is None else checked_now(now), *rows]


def _add_kinds(
    rows: list[bytes | str | int],
    charges: Iterable[Charge],
    shadow: Iterable[Charge],
    held: Iterable[Charge],
) -> None:
    """Name the kinds of charges in their rows, and add the arguments that these need."""
    asked = (("take", charges), ("shadow", shadow), ("held", held))
    roles = [(role, charge) for role, some in asked for charge in some]
    for i, (role, charge) in enumerate(roles):
        kind: str = charge.kind
        if kind == "slot":
            rows += (charge.lasts, charge.member)
        elif kind == "ban":
            counted = ("take", "shadow") if role == "shadow" else ("take",)
            places = [
                str(place)
                for place, (other_role, other) in enumerate(roles, start=1)
                if other_role in counted and charge.key in other.counts_for
            ]
            rows[6 * i + 1] = 0  # a ban's tokens are taken only by counting
            rows += (charge.lasts, " ".join(places))
        elif charge.up_to is not None:
            kind = "up-to"
            rows += (charge.up_to, charge.rest)
        elif charge.noted:
            rows += ("", "")
        else:
            continue
        rows[6 * i] = f"{role} {kind} {charge.noted}" if charge.noted else f"{role} {kind}"


def _read(
    call: Call,
    charges: Sequence[Charge],
    shadow: Sequence[Charge] = (),
    held: Sequence[Charge] = (),
) -> Reply:
    try:
        reply = call()
    except FAILURES as error:
        raise translated(error) from error
    count = len(charges) + len(shadow) + len(held)
    if type(reply) is not list or len(reply) != 1 + 4 * count or {*map(type, reply)} != {int}:
        raise StoreUnavailable(f"the reply is not one of the script's: {reply!r:.100}")
    numbers = iter(reply)
    return next(numbers), list(zip(numbers, numbers, numbers, numbers, strict=True))


def _decision(
    reply: Reply,
    charges: Sequence[Charge],
    shadow: Sequence[Charge] = (),
    held: Sequence[Charge] = (),
) -> Decision:
    now, answers = reply
    outcomes = list(map(outcome, charges, repeat(False), answers, repeat(now)))
    if shadow:
        answers = answers[len(charges) :]
        outcomes += map(outcome, shadow, repeat(True), answers, repeat(now))
    if held:
        # Of the charges held, only a ban that counts the refusal has a new outcome.
        counted = zip(held, answers[-len(held) :], strict=True)
        outcomes += [outcome(c, False, a, now) for c, a in counted if c.kind == "ban" and a[1]]
    return Decision.of(tuple(outcomes), now)
