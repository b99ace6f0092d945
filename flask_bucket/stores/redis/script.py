"""The script: how it is called, and how its reply is read. No other module knows the layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...bucket import outcome
from ...decisions import Charge, Charges, Decision, Outcome, no_negative_cost
from ...errors import StoreUnavailable
from ..base import checked_now
from .links import Call
from .replies import FAILURES, translated


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
        return _decision(reply, charges, shadow)

    def peek(self, charges: Sequence[Charge], now: int | None) -> Decision:
        """Look at all. See ``Store.peek``."""
        no_negative_cost(charges)
        return _decision(self.run(b"peek", charges, now=now), charges, ())

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
    ) -> list[int]:
        """Return the reply to one call: see ``bucket.lua``.

        :raises StoreUnavailable: if there is none, or it is not one of the script's.
        """
        count = len(charges) + len(held) + len(shadow)
        if not count:
            return [0]
        return _reply(self._prepare(*arguments(mode, charges, held, shadow, now)), count)

    def _take_again(self, charges: Charges) -> Decision:
        """Take charges that come again, with a call that is packed once."""
        script, call = charges.prepared
        if script is not self:
            no_negative_cost(charges)
            call = self._prepare(*arguments(b"take", charges))
            charges.prepared = self, call
        return _decision(_reply(call, len(charges)), charges, ())


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
    for kind, some in ((b"take", charges), (b"shadow", shadow), (b"held", held)):
        for charge in some:
            limit = charge.limit
            keys.append(charge.key)
            rows += (kind, charge.cost, limit.capacity, limit.scale, limit.step, limit.tick)
    return [len(keys), *keys, mode, b"" if now is None else checked_now(now), *rows]


def rows_of(reply: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return what a reply says of each charge: tokens needed, tokens left, and last refill."""
    return [*zip(reply[1::3], reply[2::3], reply[3::3], strict=True)]


def _reply(call: Call, charges: int) -> list[int]:
    try:
        reply = call()
    except FAILURES as error:
        raise translated(error) from error
    if type(reply) is not list or len(reply) != 1 + 3 * charges or {*map(type, reply)} != {int}:
        raise StoreUnavailable(f"the reply is not one of the script's: {reply!r:.100}")
    return reply


def _decision(reply: list[int], charges: Sequence[Charge], shadow: Sequence[Charge]) -> Decision:
    now = reply[0]
    outcomes: list[Outcome] = []
    i = 1
    for dry_run, some in ((False, charges), (True, shadow)):
        for charge in some:
            needed, tokens, last_refill = reply[i : i + 3]
            outcomes.append(outcome(charge, dry_run, needed, tokens, last_refill, now))
            i += 3
    return Decision.of(tuple(outcomes), now)
