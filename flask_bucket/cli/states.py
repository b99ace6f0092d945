"""The Limiters and routes of the current application, for the commands."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flask import Flask, current_app

from ..applications import LimiterMissingError, enforcers_of
from ..bound import BoundRule, Facts, read_numbers
from ..enforcing import Enforcer
from ..keys import KIND_MARKS, SCOPE_MARK, KeyParts, shortened
from ..limits import Limit
from ..rules import METHODS
from .output import Failure


@dataclass(frozen=True, slots=True)
class Route:
    """One URL rule and method of an application."""

    rule: str
    endpoint: str
    method: str


def limiters(name: str | None = None) -> dict[str, Enforcer]:
    """Return the enforcers of the application, or that of one Limiter, by name.

    :raises Failure: if there is none.
    """
    try:
        states = enforcers_of(current_app)
    except LimiterMissingError as error:
        raise Failure(str(error), 1) from None
    if name is None:
        return states
    if name not in states:
        raise Failure(
            f"There is no Limiter {name!r}. Expected one of {', '.join(map(repr, states))}."
        )
    return {name: states[name]}


def routes(app: Flask) -> Iterator[Route]:
    """Yield the routes of the application, sorted by URL.

    HEAD counts as GET. The OPTIONS that Flask adds is left out.
    """
    for rule in sorted(app.url_map.iter_rules(), key=lambda r: (r.rule, r.endpoint)):
        methods = set(rule.methods or ("GET",))
        if "GET" in methods:
            methods.discard("HEAD")
        if getattr(rule, "provide_automatic_options", False) or len(methods) > 1:
            methods.discard("OPTIONS")
        for method in sorted(methods):
            yield Route(rule.rule, rule.endpoint, method)


@dataclass(frozen=True, slots=True)
class KnownLimits:
    """The limits of an application, to be found by keys."""

    #: Those that rules give, by the rest of their keys after the client.
    written: Mapping[str, Limit]
    #: Those that functions return without a request, likewise. A request may get others.
    returned: Mapping[str, Limit]
    #: The rules whose functions return limits.
    functions: tuple[BoundRule, ...]

    def function(self, parts: KeyParts) -> str | None:
        """Return the name of the function that returns the limit of a key, if there is one."""
        name = parts.name.removeprefix(KIND_MARKS[parts.kind])
        _, mark, last = parts.scope.rpartition(SCOPE_MARK)
        numbers = mark + last if mark and read_numbers(parts.scope, name) else ""
        for bound in self.functions:
            is_there = parts.scope == shortened(bound.scope + numbers)
            if is_there and (numbers or _gives(bound.rule.name, name)):
                return name_of(bound.rule.limits)
        return None


def _gives(given: str | None, name: str) -> bool:
    """Return whether a limit has the name that its rule gives to all limits of its function."""
    return given is None or name == given or bool(re.fullmatch(re.escape(given) + r"-\d+", name))


def known_limits(state: Enforcer) -> KnownLimits:
    """Return the limits of an application's rules, and the rules whose limits are functions."""
    written: dict[str, Limit] = {}
    returned: dict[str, Limit] = {}
    plans = [state.planner.plan(route.endpoint, route.method) for route in routes(state.app)]
    plans += [state.planner.plan(None, method) for method in METHODS]
    for plan in plans:
        for bound in plan.bounds:
            known = returned if bound.fixed is None else written
            known |= {charge.key: charge.limit for charge in bound.charges("", WithoutRequest())}
    bounds = [bound for plan in plans for bound in plan.bounds]
    bans = [bound.ban for bound in (*state.planner.bans, *bounds) if bound.ban is not None]
    written |= {ban.ending: ban.ban.after for ban in bans}
    functions = tuple(bound for bound in bounds if bound.fixed is None)
    return KnownLimits(written, returned, functions)


def limits_now(bound: BoundRule) -> tuple[Limit, ...] | None:
    """Return the limits of a rule; None if its function needs a request to return them.

    A function that reads the configuration returns them without one, in the current application
    context.
    """
    limits = bound.rule.limits
    if not callable(limits):
        return limits
    try:
        return limits()
    except Exception:  # whatever the application's function raises
        return None


class WithoutRequest(Facts):
    """The facts that are known without a request. If a function returns the cost, it is 1 here."""

    def cost(self, bound: BoundRule) -> int:
        return bound.cost if isinstance(bound.cost, int) else 1

    def limits(self, bound: BoundRule) -> tuple[Limit, ...]:
        return limits_now(bound) or ()


def name_of(function: Any) -> str:
    """Return the name of a function. A lambda is named by its line."""
    function = inspect.unwrap(function)
    name = str(getattr(function, "__qualname__", None) or type(function).__qualname__)
    code = getattr(function, "__code__", None)
    name = name.rpartition("<locals>.")[2]
    if name == "<lambda>" and code is not None:
        return f"lambda in line {code.co_firstlineno} of {function.__module__}"
    return name


def exempt_in(states: Mapping[str, Enforcer], route: Route) -> bool:
    """Return whether a route is exempt from limits of any Limiter."""
    return any(is_exempt(state, route) for state in states.values())


def is_exempt(state: Enforcer, route: Route) -> bool:
    view = state.app.view_functions.get(route.endpoint)
    return view is not None and state.planner.is_exempt(route.endpoint, view, route.method)


def reads_address(function: Any) -> bool:
    """Return whether a function is one of ours that reads only the client's address."""
    return getattr(function, "__module__", None) == f"{__package__.partition('.')[0]}.networks"


def is_constant(function: Any) -> bool:
    """Return whether a function reads nothing, such as ``lambda: "all"``.

    Its code refers to no names and to no variables of a function around it, so it cannot reach a
    request.
    """
    code = getattr(function, "__code__", None)
    return code is not None and not code.co_names and not code.co_freevars


def is_independent_of_hooks(key_func: Any) -> bool:
    """Return whether a key function depends on nothing that a hook of the application sets.

    Those of this package read the address or a header.
    """
    ours = str(getattr(key_func, "__module__", "")).startswith(f"{__package__.partition('.')[0]}.")
    return ours or is_constant(key_func)
