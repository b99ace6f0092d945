"""The checks of ``flask bucket doctor`` that look at rules and routes: codes FB301 to FB305."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flask import Flask

from ..at_once import AtOnce
from ..bound import BoundRule
from ..decorators import BlueprintLimit
from ..endpoints import blueprint_names
from ..enforcing import Enforcer
from ..limits import Limit
from ..plans import BEFORE
from ..rules import METHODS, counted_as
from .bursts import least_burst
from .findings import Finding
from .states import Route, exempt_in, is_independent_of_hooks, name_of, routes

#: Routes that one finding names.
_NAMED = 10


def limit_checks(state: Enforcer) -> Iterator[Finding]:
    """Check for limits that refuse every request, or almost every client."""
    seen: set[Finding] = set()
    for route in routes(state.app):
        for bound in state.planner.plan(route.endpoint, route.method).bounds:
            for limit, *_ in bound.fixed or ():
                where = (
                    f"{route.method} {route.rule}"
                    if _is_own(bound)
                    else f"The {bound.source} limits"
                )
                for finding in _of_limit(where, bound, limit):
                    if finding not in seen:
                        seen.add(finding)
                        yield finding


def _is_own(bound: BoundRule) -> bool:
    return bound.source in ("view", "blueprint")


def _of_limit(where: str, bound: BoundRule, limit: Limit) -> Iterator[Finding]:
    cost = bound.cost
    if isinstance(limit, AtOnce):
        return  # a request holds one slot, and slots do not refill
    if isinstance(cost, int) and cost > limit.capacity:
        yield Finding(
            "FB301",
            "error",
            f"{where}: every request is refused, because it costs {cost} tokens and {limit} never "
            f"holds more than {limit.capacity}.",
            f"Give the limit a burst of at least {cost}, or lower the cost.",
        )
    elif limit.capacity < least_burst(limit):
        yield Finding(
            "FB303",
            "warning",
            f"{where}: the burst of {limit} is less than two seconds' worth of its rate. A client "
            "that keeps to the rate on average, but not evenly, is refused.",
            f"Give the limit a burst of {least_burst(limit)} or more. Try it on your logs with "
            "flask bucket simulate.",
        )


def route_checks(states: Mapping[str, Enforcer]) -> Iterator[Finding]:
    """Check for routes that have no limit of any Limiter and are not exempt."""
    app = next(iter(states.values())).app
    bare = [
        route
        for route in routes(app)
        if not exempt_in(states, route)
        and not any(_bounds(state, route.endpoint, route.method) for state in states.values())
    ]
    limited = {e for e in {route.endpoint for route in bare} if _is_limited(states, e)}
    partly = [route for route in bare if route.endpoint in limited]
    wholly = [route for route in bare if route.endpoint not in limited]
    if wholly:
        yield Finding(
            "FB302",
            "warning",
            f"These routes have no limit: {_listed(wholly)}.",
            "Set BUCKET_DEFAULT_LIMITS, decorate the views, or exempt them with @limiter.exempt.",
        )
    if partly:
        yield Finding(
            "FB302",
            "warning",
            "These routes have no limit, although their views have limits for other methods: "
            f"{_listed(partly)}.",
            "Add these methods to the methods of a limit, or set BUCKET_DEFAULT_LIMITS.",
        )


def _listed(found: list[Route]) -> str:
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(f"{route.method} {route.rule}" for route in found[:_NAMED]) + more


def _bounds(state: Enforcer, endpoint: str | None, method: str) -> tuple[BoundRule, ...]:
    return state.planner.plan(endpoint, method).bounds


def _is_limited(states: Mapping[str, Enforcer], endpoint: str) -> bool:
    """Return whether a view has limits of its own for any method."""
    return any(
        bound.source == "view"
        for state in states.values()
        for method in METHODS
        for bound in _bounds(state, endpoint, method)
    )


def method_checks(state: Enforcer) -> Iterator[Finding]:
    """Check for limits on views that name methods without a route."""
    served: dict[str, set[str]] = {}
    for rule in state.app.url_map.iter_rules():
        served.setdefault(rule.endpoint, set()).update(map(counted_as, rule.methods or METHODS))
    for endpoint, methods in served.items():
        unserved = sorted(
            {
                method
                for method in map(counted_as, METHODS)
                if method not in methods
                for bound in _bounds(state, endpoint, method)
                if bound.source == "view" and bound.rule.methods is not None
            }
        )
        if unserved:
            yield Finding(
                "FB304",
                "warning",
                f"A limit on {endpoint!r} names {', '.join(unserved)}, which none of its routes "
                f"serves: they serve {', '.join(sorted(methods - {'OPTIONS'}))}.",
                "Correct the limit's methods, or the route's.",
            )


def hook_checks(state: Enforcer) -> Iterator[Finding]:
    """Check for hooks that run after application and default limits have asked for a key.

    A key function that reads a value of a later hook, such as ``g.user``, finds nothing.
    """
    asked: dict[str, None] = {}
    later: dict[str, None] = {}
    for route in routes(state.app):
        point = state.planner.plan(route.endpoint, route.method).at(BEFORE)
        inherited = (
            [b for b in point.bounds if b.source in ("application", "default")] if point else []
        )
        asking = [bound.key_func for bound in inherited]
        asking += [b.ban.key_func for b in (point.bans if point else ()) if b.ban is not None]
        functions = [function for function in asking if not is_independent_of_hooks(function)]
        hooks = _hooks_after(state, route.endpoint) if functions else []
        if hooks:
            asked |= dict.fromkeys(map(name_of, functions))
            later |= dict.fromkeys(map(name_of, hooks))
    if later:
        yield Finding(
            "FB305",
            "note",
            "The key functions of application limits, default limits and bans "
            f"({', '.join(asked)}) are called before these hooks run: {', '.join(later)}.",
            "If the key depends on what a hook sets, register the hook before Limiter(app), or "
            "limit the blueprint after its hook.",
        )


def _hooks_after(state: Enforcer, endpoint: str) -> list[Any]:
    """Return the application's own hooks that run after the Limiter's, before a view."""
    app: Flask = state.app
    hooks = list(app.before_request_funcs.get(None, ()))
    after = hooks[hooks.index(state.before_view) + 1 :] if state.before_view in hooks else []
    for name in reversed(blueprint_names(endpoint)):
        after += app.before_request_funcs.get(name, ())
    return [hook for hook in after if not _is_ours(hook)]


def _is_ours(hook: Any) -> bool:
    return isinstance(hook, BlueprintLimit) or isinstance(getattr(hook, "__self__", None), Enforcer)
