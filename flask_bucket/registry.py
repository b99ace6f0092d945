"""Registry: what was decorated, limited and exempted through one Limiter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, ref

from flask import Flask, has_request_context
from flask.sansio.blueprints import Blueprint

from .errors import ConfigError
from .rules import Rule

View = Callable[..., Any]

#: The attribute by which a decorated function is recognised.
DECORATION = "flask_bucket_decoration"

#: The attribute by which a function keeps the wrappers that were made around it: one above
#: ``@app.get`` in an application factory would be forgotten otherwise, and its limit with it.
WRAPPERS = "flask_bucket_wrappers"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Decoration:
    """What ``@limiter.limit`` made of a function: the point where its rules are charged."""

    registry: Registry
    #: From the innermost decorator out.
    rules: tuple[Rule, ...]
    function: View
    #: Itself decorated; a reference, since functools.wraps copies attributes to other wrappers.
    wrapper: ref[View]


class Registry:
    """What was limited and exempted through one Limiter, wherever its applications are."""

    def __init__(self) -> None:
        self.apps: WeakSet[Flask] = WeakSet()
        self.blueprints: WeakKeyDictionary[Blueprint, list[Rule]] = WeakKeyDictionary()
        self.exempt: WeakSet[View | Blueprint] = WeakSet()
        #: Counts what may change plans that were made before.
        self.version = 0

    def decoration(self, function: View) -> Decoration | None:
        """Return the decoration of this very function by this Limiter, not one inherited."""
        found = getattr(function, DECORATION, None)
        if isinstance(found, Decoration) and found.registry is self and found.wrapper() is function:
            return found
        return None

    def undecorated(self, target: View) -> tuple[View, tuple[Rule, ...]]:
        """Return the function to wrap, and the rules that it has already, if it is wrapped.

        So stacked decorators are one wrapper, and one call of the store.
        """
        decoration = self.decoration(target)
        return (decoration.function, decoration.rules) if decoration else (target, ())

    def decorated(self, wrapper: View, function: View, rules: tuple[Rule, ...]) -> Decoration:
        """Note what was made of a function."""
        decoration = Decoration(self, rules, function, ref(wrapper))
        setattr(wrapper, DECORATION, decoration)
        if isinstance(function, FunctionType) and not has_request_context():
            # Within a request no view is being made, and the list would grow with each one.
            vars(function).setdefault(WRAPPERS, []).append(wrapper)
        return decoration

    def decorations_of(self, function: View) -> Iterator[Decoration]:
        """Yield what was made of a function, each time that it was decorated."""
        for wrapper in getattr(function, WRAPPERS, ()):
            decoration = self.decoration(wrapper)
            if decoration is not None and decoration.function is function:
                yield decoration

    def is_exempt(self, target: View | Blueprint) -> bool:
        """Return whether something was exempted."""
        try:
            return target in self.exempt
        except TypeError:
            return False  # not hashable, so it never was

    def limit_blueprint(self, blueprint: Blueprint, rule: Rule) -> None:
        self.blueprints.setdefault(blueprint, []).append(rule)
        self.version += 1

    def exempt_from_now(self, target: View | Blueprint) -> None:
        # A bound method is a new object each time that it is looked up.
        try:
            self.exempt.add(getattr(target, "__func__", target))
        except TypeError:
            raise ConfigError(
                f"{target!r} cannot be remembered as exempt, since it is not hashable or takes no "
                "weak references. Exempt a function that calls it."
            ) from None
        self.version += 1


def chain(function: View) -> Iterator[View]:
    """Yield a function and everything it wraps, from the outside in."""
    seen: set[int] = set()
    current: Any = function
    while current is not None and id(current) not in seen:
        current = getattr(current, "__func__", current)
        seen.add(id(current))
        yield current
        inner = current.func if isinstance(current, partial) else None
        current = getattr(current, "__wrapped__", inner)
