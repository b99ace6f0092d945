"""Decorators: how limits are put on functions and Blueprints, and found again."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import wraps
from operator import is_
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, ref

from flask import Request, has_request_context
from flask.sansio.blueprints import Blueprint
from werkzeug.exceptions import HTTPException

from .bans import Ban
from .clients import KeyFunc
from .current import current_request
from .decisions import Decision
from .errors import ConfigError
from .functions import is_view
from .rules import Rule

View = Callable[..., Any]

Target = TypeVar("Target", bound="Callable[..., Any] | Blueprint")

#: The attribute by which a decorated function is recognised.
_DECORATION = "flask_bucket_decoration"

#: The attribute in which a function keeps the wrappers that were made around it, also with other
#: decorators between. Without it, a wrapper above ``@app.get`` in an application factory would be
#: forgotten, and its limit with it.
_WRAPPERS = "flask_bucket_wrappers"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Decoration:
    """One decorated function: the point at which its rules are charged."""

    registry: Registry
    #: From the innermost decorator out.
    rules: tuple[Rule, ...]
    function: View
    #: What was decorated: the function, or an earlier wrapper of it that this one stands for too.
    target: View
    #: Tells it from other limited functions, where a view calls it.
    name: str
    #: A weak reference to the wrapper: functools.wraps copies attributes to other wrappers.
    wrapper: ref[View]
    #: The request in which it was made, if any.
    made_in: ref[Request] | None


@dataclass(frozen=True, slots=True, eq=False)
class DispatchLimit:
    """Rules that a view's class puts on its methods anew with each request."""

    #: From the innermost decorator out, as the decoration will have them.
    rules: tuple[Rule, ...]

    def made(self, decoration: Decoration) -> bool:
        """Return whether a decoration was made of these rules."""
        made = decoration.rules
        return len(made) == len(self.rules) and all(map(is_, made, self.rules))


@dataclass(frozen=True, slots=True, eq=False)
class BlueprintLimit:
    """Rules that were put on a blueprint. They are charged where they stand among its hooks.

    This is the hook, a ``before_request`` function of the blueprint.
    """

    rules: tuple[Rule, ...]
    charge: Callable[[BlueprintLimit], None]

    def __call__(self) -> None:
        self.charge(self)


@dataclass(frozen=True, slots=True)
class Exemption:
    """The kinds of limits that a view or a blueprint is free of."""

    application: bool = True
    blueprint: bool = True
    default: bool = True

    def joined(self, other: Exemption) -> Exemption:
        """Return the limits that are free by either of two."""
        return Exemption(
            self.application or other.application,
            self.blueprint or other.blueprint,
            self.default or other.default,
        )


NOT_EXEMPT = Exemption(application=False, blueprint=False, default=False)


@dataclass(slots=True, eq=False)
class Registry:
    """Everything that was set on one Limiter, for all of its applications."""

    name: str
    _: KW_ONLY
    #: The client of a request, for rules without a key function of their own.
    key_func: KeyFunc
    #: The rules of endpoints without their own, and those of the application as a whole.
    default: tuple[Rule, ...]
    application: tuple[Rule, ...]
    #: The bans of clients from the application as a whole.
    bans: tuple[Ban, ...]
    on_breach: Callable[[Decision], Any] | None
    #: Whether any of these functions must be awaited.
    has_async: bool
    #: A URL, a client of redis-py, a store, or None. Its repr may show a password.
    redis: object = field(repr=False)
    blueprints: WeakKeyDictionary[Blueprint, list[BlueprintLimit]] = field(
        default_factory=WeakKeyDictionary
    )
    exemptions: WeakKeyDictionary[Any, Exemption] = field(default_factory=WeakKeyDictionary)
    #: Functions that let a request pass without any limit by returning True.
    filters: list[Callable[[], bool]] = field(default_factory=list)
    #: Whether limits hold; None: as each application's BUCKET_ENABLED says.
    enabled: bool | None = None
    #: How many functions of each name were limited since the latest application was added.
    named: Counter[str] = field(default_factory=Counter)
    #: Counts the changes after which earlier plans may be wrong.
    version: int = 0

    def decorate(
        self,
        target: View,
        rules: tuple[Rule, ...],
        charge: Callable[[Decoration], HTTPException | None],
    ) -> View:
        """Wrap a function so that its rules are charged when it is called.

        A function that is wrapped already gets one wrapper for all, so that stacked limits are
        one call of the store.

        :param charge: charges a decoration, and raises a refusal or returns it as the answer.
        :raises ConfigError: for anything but a function.
        """
        if not is_view(target):
            raise ConfigError(
                f"A limit decorates a function or a Blueprint, not {target!r}. For a class, "
                "decorate its methods, or put the limit into its list of decorators; for an "
                "application, set application_limits or default_limits."
            )
        before = self.decoration(target)
        function = target if before is None else before.function
        rules = rules if before is None else (*before.rules, *rules)
        decoration: Decoration

        if inspect.iscoroutinefunction(function):
            in_thread = self.has_async or any(rule.has_async for rule in rules)

            @wraps(function)
            async def wrapper(*args: Any, **kwargs: Any) -> Any:
                if in_thread:
                    # A running loop cannot be waited for from within, so another thread runs the
                    # call.
                    refusal = await asyncio.to_thread(charge, decoration)
                else:
                    refusal = charge(decoration)
                return await function(*args, **kwargs) if refusal is None else refusal
        else:

            @wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                refusal = charge(decoration)
                return function(*args, **kwargs) if refusal is None else refusal

        made_in = ref(current_request()) if has_request_context() else None
        name = self._name(function, made_in) if before is None else before.name
        decoration = Decoration(self, rules, function, target, name, ref(wrapper), made_in)
        setattr(wrapper, _DECORATION, decoration)
        if rules not in _keep(decoration, wrapper):
            self.version += 1
        return wrapper

    def _name(self, function: View, made_in: ref[Request] | None) -> str:
        """Return a name for a limited function. Those of one qualified name are numbered.

        Workers must agree, so the order of decoration counts, and each application begins anew:
        a worker may make its applications in any order. What requests make has no number, since
        no two requests would share a bucket.
        """
        name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
        if made_in is not None:
            return name
        self.named[name] += 1
        return name if self.named[name] == 1 else f"{name}-{self.named[name]}"

    def decoration(self, function: View) -> Decoration | None:
        """Return the decoration of this very function by this Limiter, not one inherited."""
        found = getattr(function, _DECORATION, None)
        if isinstance(found, Decoration) and found.registry is self and found.wrapper() is function:
            return found
        return None

    def decorations_of(self, function: View) -> Iterator[Decoration]:
        """Yield the decorations around a function, also those with other decorators between."""
        for wrapper in getattr(_owner(function), _WRAPPERS, ()):
            decoration = self.decoration(wrapper)
            if decoration is not None and any(f == function for f in _inward(decoration.target)):
                yield decoration

    def limit_blueprint(self, blueprint: Blueprint, limit: BlueprintLimit) -> None:
        """Put a limit on a blueprint, as the next of its ``before_request`` hooks."""
        self.blueprints.setdefault(blueprint, []).append(limit)
        self.version += 1
        # A blueprint that is registered takes no more hooks, and Flask says so. Plans find out
        # that the hook is missing, and charge such a limit with the application's.
        with suppress(AssertionError):
            blueprint.before_request(limit)

    def exempt(self, exemption: Exemption, target: Target) -> Target:
        """Free a view or a blueprint of limits, and return it.

        :raises ConfigError: for anything else.
        """
        if not isinstance(target, Blueprint) and not is_view(target):
            raise ConfigError(
                f"Views and Blueprints can be exempted, not {target!r}. For a class, exempt its "
                "methods, or put limiter.exempt into its list of decorators; an application as a "
                "whole is free with BUCKET_ENABLED = False."
            )
        try:
            self.exemptions[_owner(target)] = exemption
        except TypeError:
            raise ConfigError(
                f"{target!r} cannot be remembered as exempt, since it is not hashable or takes no "
                "weak references. Exempt a function that calls it."
            ) from None
        self.version += 1
        return target

    def exemption(self, target: View | Blueprint) -> Exemption | None:
        """Return the limits that a view or a blueprint is free of, if it was exempted."""
        try:
            return self.exemptions.get(_owner(target))
        except TypeError:
            return None  # not hashable, so it never was


def _owner(target: Any) -> Any:
    """Return the object to remember things about: a bound method is made anew at each look-up."""
    return getattr(target, "__func__", target)


def _inward(target: View) -> Iterator[View]:
    """Yield a decorated function and those that it stands for, from the outside in."""
    seen: set[int] = set()
    current: Any = target
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        decoration = getattr(current, _DECORATION, None)
        if isinstance(decoration, Decoration) and decoration.wrapper() is current:
            current = decoration.target
        elif inspect.ismethod(current):
            return  # it shares what it wraps with the same method of other objects
        else:
            current = getattr(current, "__wrapped__", None)


def _keep(decoration: Decoration, wrapper: View) -> list[tuple[Rule, ...]]:
    """Let a decorated function, and each that it wraps, keep the wrapper around it.

    Of the wrappers that were made within requests, a function keeps those of the latest request.
    Otherwise it would keep one more with each request that decorates it.

    :returns: the rules of the wrappers that are kept no longer.
    :raises ConfigError: if it has no attributes. A limit above ``@app.get`` would be inert.
    """
    dropped: list[tuple[Rule, ...]] = []
    for function in _inward(decoration.target):
        try:
            kept = vars(_owner(function)).setdefault(_WRAPPERS, [])
        except (AttributeError, TypeError):
            if function is not decoration.target:
                continue  # a function written in C, or a class: what stands around it is limited
            raise ConfigError(
                f"{function!r} cannot be limited, since it takes no attributes. Limit a function "
                "that calls it."
            ) from None
        if decoration.made_in is not None:
            now = (None, decoration.made_in)
            past = [w for w in kept if getattr(w, _DECORATION).made_in not in now]
            kept[:] = [w for w in kept if w not in past]
            dropped += [getattr(w, _DECORATION).rules for w in past]
        if wrapper not in kept:  # functools.wraps lets functions share their lists
            kept.append(wrapper)
    return dropped
