"""Plans: where in a request which rules are charged, for one endpoint and method."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from .bound import BoundRule, policies_of
from .clients import KeyFunc
from .decorators import BlueprintLimit, Decoration, DispatchLimit, View

#: The place of the point where ``Limiter(app)`` stands among the application's hooks.
BEFORE: Final = "before"

#: The place of a ``with`` block.
BLOCK: Final = "block"

#: Where a point is charged: before the request, at a blueprint's hook, at a decorator, which may be
#: put on anew with each request, or in a block.
Place = str | BlueprintLimit | Decoration | DispatchLimit


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """Rules that are charged together, in one call of the store."""

    place: Place
    bounds: tuple[BoundRule, ...]
    #: Whether a refusal here ends the request, and so gives back what it was charged before.
    #: One inside a view refuses only the part of the view that asked.
    ends_request: bool = True
    #: The Limiter's bans, each bound as a rule whose limits nobody is charged.
    bans: tuple[BoundRule, ...] = ()
    #: Whether any ban counts refusals here.
    has_bans: bool = field(init=False)
    #: The key function of all rules, if they charge a client the same with every request.
    key_func: KeyFunc | None = field(init=False)

    def __post_init__(self) -> None:
        bans = [bound.ban for bound in (*self.bounds, *self.bans) if bound.ban is not None]
        object.__setattr__(self, "has_bans", bool(bans))
        key_func = self.bounds[0].key_func if self.bounds else None
        lasts = all(b.is_fixed and b.key_func is key_func for b in self.bounds)
        lasts = lasts and all(ban.key_func is key_func for ban in bans)
        object.__setattr__(self, "key_func", key_func if lasts else None)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The rules of one endpoint and method, in the order in which a request is charged."""

    #: The view that this was made for.
    view: View | None
    method: str
    points: tuple[Point, ...]
    #: What :func:`policies_of` returns.
    policies: dict[str, str] = field(init=False)
    _by_place: dict[Place, Point] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_place", {point.place: point for point in self.points})
        object.__setattr__(self, "policies", policies_of(self.bounds))

    def at(self, place: Place) -> Point | None:
        """Return the point that is charged at a place; None if none is."""
        return self._by_place.get(place)

    def at_dispatch(self, decoration: Decoration) -> Point | None:
        """Return the point of a decorator that the view's class put on for this request."""
        for point in self.points:
            if isinstance(point.place, DispatchLimit) and point.place.made(decoration):
                return point
        return None

    @property
    def bounds(self) -> tuple[BoundRule, ...]:
        """All rules, in the order in which they are charged."""
        return tuple(bound for point in self.points for bound in point.bounds)
