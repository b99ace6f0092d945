"""The script: how it is called, and how its reply is read. No other module knows the layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    charges: Sequence[Charge],
    held: Sequence[Charge] = (),
    shadow: Sequence[Charge] = (),
    now: int | None = None,
) -> list[bytes | str | int]:
    """Return the number of keys, the keys and the arguments of a call.

    The rows of the reply are in the same order: charges, then dry-run charges, then held ones.
    """
    keys: list[str] = []
    rows: list[bytes | str | int] = []
    of_kinds: list[str | int] = []
    for role, some in (("take", charges), ("shadow", shadow), ("held", held)):
        for charge in some:
            limit, cost, named = charge.limit, charge.cost, role
            keys.append(charge.key)
            if charge.kind != "rate" or charge.up_to is not None or charge.noted:
                counted = (*charges, *shadow) if role == "shadow" else charges
                kind, *more = _kind(charge, counted)
                named = f"{role} {kind} {charge.noted}" if charge.noted else f"{role} {kind}"
                cost = 0 if kind == "ban" else cost  # its tokens are taken only by counting
                of_kinds += more
            rows += (named, cost, limit.capacity, limit.scale, limit.step, limit.tick)
    time = b"" if now is None else checked_now(now)
    return [len(keys), *keys, mode, time, *rows, *of_kinds]


def _kind(charge: Charge, counted: Sequence[Charge]) -> tuple[str, str | int, str | int]:
    """Return a charge's kind as the script names it, and the two arguments of that kind.

    :param counted: the charges whose refusals it may count, if it is a ban.
    """
    if charge.kind == "slot":
        return "slot", charge.lasts, charge.member
    if charge.kind == "ban":
        places = [str(i) for i, c in enumerate(counted, start=1) if charge.key in c.counts_for]
        return "ban", charge.lasts, " ".join(places)
    if charge.up_to is not None:
        return "up-to", charge.up_to, charge.rest
    return "rate", "", ""


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
