"""``flask bucket limits``: every route, with the limits in force."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import click
from flask import current_app
from flask.cli import with_appcontext

from ..bound import BoundRule
from ..enforcing import Enforcer
from .output import Table, counted, print_json, print_table
from .states import Route, exempt_in, limiters, name_of, routes

#: Marks a route that has no limit, although nobody said that it is meant so.
_BARE = "NO LIMIT"

#: Stands for all URLs that no route matches: application limits count them as well.
UNMATCHED = Route("(no route)", "", "*")


@dataclass(frozen=True, slots=True)
class InForce:
    """One limit as it holds for one route."""

    route: Route
    limiter: str
    limit: str
    name: str | None
    source: str
    key: str
    scope: str
    cost: str
    conditions: tuple[str, ...]
    dry_run: bool
    enabled: bool


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_appcontext
def limits(as_json: bool) -> None:
    """List every route and method with the limits in force, and those with none."""
    states = limiters()
    listed = list(routes(current_app))
    unmatched = [limit for name, state in states.items() for limit in _in_force(name, state, None)]
    found = {
        route: [limit for name, state in states.items() for limit in _in_force(name, state, route)]
        for route in listed
    }
    if unmatched:
        found[UNMATCHED] = unmatched
    if as_json:
        print_json({"routes": [_as_data(route, found[route], states) for route in found]})
    else:
        _print(found, states)


def _in_force(limiter: str, state: Enforcer, route: Route | None) -> Iterator[InForce]:
    if route is None:
        plan = state.planner.plan(None, "GET")
    else:
        plan = state.planner.plan(route.endpoint, route.method)
    for bound in plan.bounds:
        for limit, name in _limits(bound):
            yield InForce(
                route=route or UNMATCHED,
                limiter=limiter,
                limit=limit,
                name=name,
                source=bound.source,
                key=name_of(bound.key_func),
                scope=bound.scope,
                cost=cost_of(bound),
                conditions=tuple(_conditions(bound)),
                dry_run=bound.shadow,
                enabled=state.config.enabled,
            )


def _limits(bound: BoundRule) -> Iterator[tuple[str, str | None]]:
    """Yield each limit and its name; what a function will return only a request can tell."""
    if bound.fixed is None:
        yield f"{name_of(bound.rule.limits)}()", None
    else:
        for limit, _ in bound.fixed:
            yield str(limit), limit.name


def cost_of(bound: BoundRule) -> str:
    """Return the cost, or the function that says it."""
    cost = bound.cost
    return str(cost) if isinstance(cost, int) else f"{name_of(cost)}()"


def _conditions(bound: BoundRule) -> Iterator[str]:
    rule = bound.rule
    if rule.methods is not None:
        yield f"methods {', '.join(sorted(rule.methods))}"
    if rule.per_method:
        yield "per method"
    if rule.scope is not None:
        yield f"shared as {rule.scope!r}"
    if rule.exempt_when is not None:
        yield f"exempt when {name_of(rule.exempt_when)}"
    if rule.deduct_when is not None:
        yield f"deduct when {name_of(rule.deduct_when)}"


def _as_data(route: Route, found: list[InForce], states: Mapping[str, Enforcer]) -> dict[str, Any]:
    return {
        "rule": route.rule,
        "endpoint": route.endpoint or None,
        "method": route.method,
        "limited": any(limit.enabled and not limit.dry_run for limit in found),
        "exempt": not found and exempt_in(states, route),
        "limits": [
            {
                "limit": limit.limit,
                "name": limit.name,
                "limiter": limit.limiter,
                "source": limit.source,
                "key": limit.key,
                "scope": limit.scope,
                "cost": int(limit.cost) if limit.cost.isdecimal() else limit.cost,
                "conditions": list(limit.conditions),
                "dry_run": limit.dry_run,
                "enabled": limit.enabled,
            }
            for limit in found
        ],
    }


def _print(found: dict[Route, list[InForce]], states: dict[str, Enforcer]) -> None:
    headings = ["route", "method", "limit", "key", "cost", "source", "conditions"]
    if len(states) > 1:
        headings.append("limiter")
    rows, styles = [], []
    for route, limits_of in found.items():
        free = "exempt" if exempt_in(states, route) else _BARE
        for row, style in _rows(route, limits_of, free):
            rows.append(row[: len(headings)])
            styles.append(style)
    print_table(Table("", tuple(headings), rows, frozenset(("cost",)), styles))
    bare = sum(row[2] == _BARE for row in rows)
    if bare:
        click.echo(f"\n{counted(bare, 'route has', 'routes have')} no limit.")
    for name, state in states.items():
        if not state.config.enabled:
            click.echo(f"\nNone of this holds: BUCKET_ENABLED is False (Limiter {name!r}).")


def _rows(route: Route, found: list[InForce], free: str) -> Iterator[tuple[tuple[str, ...], str]]:
    if not found:
        row = (route.rule, route.method, free, "-", "-", "-", "-", "-")
        yield row, "yellow" if free == _BARE else "dim"
    for n, limit in enumerate(found):
        shown = (route.rule, route.method) if n == 0 else ("", "")
        conditions = "; ".join(("dry run",) * limit.dry_run + limit.conditions) or "-"
        row = (*shown, limit.limit, limit.key, limit.cost, limit.source, conditions, limit.limiter)
        yield row, "dim" if limit.dry_run or not limit.enabled else ""
