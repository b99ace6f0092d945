"""Bills: what a request is charged at one point, written once where that stays the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from .decisions import Charge, Charges
from .keys import LONGEST_CACHED, KeyFunc, Spelling
from .rules import BoundRule, checked_key

#: A charge and the rule that asked for it.
Asked = tuple[Charge, BoundRule]

#: How many bills an application keeps: those of the clients seen last.
KEPT = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """Rules that are charged together, in one call of the store."""

    bounds: tuple[BoundRule, ...]
    #: The key function of all of them, if they charge a client the same with every request.
    key_func: KeyFunc | None = None

    @classmethod
    def of(cls, bounds: Iterable[BoundRule]) -> Point:
        """Make a point that lasts, and find out whether its bills do."""
        bounds = tuple(bounds)
        if not bounds or not all(bound.is_fixed for bound in bounds):
            return cls(bounds)
        key_func = bounds[0].key_func
        return cls(bounds, key_func if all(b.key_func is key_func for b in bounds) else None)


@dataclass(frozen=True, slots=True, eq=False)
class Bill:
    """What one client is charged at one point."""

    charges: Charges
    #: What dry-run rules would charge.
    shadow: tuple[Charge, ...]
    #: All of them with their rules, in the order of the decision's outcomes.
    asked: tuple[Asked, ...]
    #: Whether any of the tokens are given back as a rule.
    returns: bool

    @classmethod
    def over(cls, enforced: list[Asked], dry: list[Asked]) -> Bill:
        charges = Charges([charge for charge, _ in enforced])
        shadow = tuple(charge for charge, _ in dry)
        returns = any(charge.returns for charge in (*charges, *shadow))
        return cls(charges, shadow, (*enforced, *dry), returns)


class Bills:
    """Writes bills, and keeps those that come again. Thread-safe."""

    def __init__(self, spelling: Spelling) -> None:
        self._spelling = spelling
        self.kept = lru_cache(maxsize=KEPT)(self._lasting)

    def bill(self, point: Point) -> Bill | None:
        """Return what the current request is to be charged, or None if that is nothing."""
        key_func = point.key_func
        if key_func is None:
            return self._written(point, {})
        client = checked_key(key_func(), key_func)
        if client is None:
            return None
        if len(client) > LONGEST_CACHED:
            return self._written(point, {id(key_func): client})
        return self.kept(point, client)

    def _lasting(self, point: Point, client: str) -> Bill:
        bill = self._written(point, {id(point.key_func): client})
        assert bill is not None
        return bill

    def _written(self, point: Point, clients: dict[int, str | None]) -> Bill | None:
        enforced: list[Asked] = []
        dry: list[Asked] = []
        for bound in point.bounds:
            client = bound.client(clients)
            if client is not None:
                some = dry if bound.shadow else enforced
                begin = self._spelling.begin(client)
                some += [(charge, bound) for charge in bound.charges(begin)]
        return Bill.over(enforced, dry) if enforced or dry else None
