"""The Limiters of the current application, as the commands look at them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flask import Flask, current_app

from ..limits import Limit
from ..state import AppState
from .output import Failure


@dataclass(frozen=True, slots=True)
class Route:
    """One URL rule and method of an application."""

    rule: str
    endpoint: str
    method: str


def limiters(name: str | None = None) -> dict[str, AppState]:
    """Return the state of each of the application's Limiters, or of the one that is named.

    :raises Failure: if there is none.
    """
    states: dict[str, AppState] = current_app.extensions.get("flask_bucket", {})
    if not states:
        raise Failure(
            f"The application {current_app.name!r} has no Limiter: call limiter.init_app(app).", 1
        )
    if name is None:
        return states
    if name not in states:
        raise Failure(f"There is no Limiter {name!r}; there are {', '.join(map(repr, states))}.")
    return {name: states[name]}


def routes(app: Flask) -> Iterator[Route]:
    """Yield what the application serves, in the order of its URLs.

    HEAD counts as GET, and the OPTIONS that Flask adds is not worth a line.
    """
    for rule in sorted(app.url_map.iter_rules(), key=lambda r: (r.rule, r.endpoint)):
        methods = set(rule.methods or ("GET",))
        if "GET" in methods:
            methods.discard("HEAD")
        if getattr(rule, "provide_automatic_options", False) or len(methods) > 1:
            methods.discard("OPTIONS")
        for method in sorted(methods):
            yield Route(rule.rule, rule.endpoint, method)


def known_limits(state: AppState) -> Mapping[str, Limit]:
    """Return the limits that the application's rules name, by what stands behind the client."""
    known: dict[str, Limit] = {}
    plans = [state.planner.plan(route.endpoint, route.method) for route in routes(state.app)]
    for plan in (*plans, state.planner.plan(None, "GET")):
        for bound in plan.bounds:
            known |= {behind: limit for limit, behind in bound.fixed or ()}
    return known


def name_of(function: Any) -> str:
    """Return how a function can be found: its name, and the line of one that has none."""
    name = str(getattr(function, "__qualname__", None) or type(function).__qualname__)
    code = getattr(function, "__code__", None)
    name = name.rpartition("<locals>.")[2]
    if name == "<lambda>" and code is not None:
        return f"lambda in line {code.co_firstlineno} of {function.__module__}"
    return name


def exempt_in(states: Mapping[str, AppState], route: Route) -> bool:
    """Return whether somebody said that a route is to be free of limits."""
    return any(is_exempt(state, route) for state in states.values())


def is_exempt(state: AppState, route: Route) -> bool:
    view = state.app.view_functions.get(route.endpoint)
    return view is not None and state.planner.is_exempt(route.endpoint, view, route.method)
