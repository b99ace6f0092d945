"""``flask bucket limits``: every route with its limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import click
from flask import current_app
from flask.cli import with_appcontext
from werkzeug.exceptions import HTTPException
from werkzeug.routing import MapAdapter, RoutingException

from ..at_once import AtOnce
from ..bound import BoundRule
from ..enforcing import Enforcer
from ..limits import Limit
from ..rules import counted_as
from .layout import Table
from .output import Failure, counted, print_json, print_table, print_text
from .states import Route, exempt_in, limiters, limits_now, name_of, routes

#: Marks a route that has no limit and is not exempt. It may be an oversight.
_BARE = "NO LIMIT"

#: Marks a route that is exempt from all limits but those that follow.
_PARTLY = "exempt, except from:"

_HEADINGS = ("route", "method", "limit", "key", "cost", "source", "conditions", "limiter")

#: Stands for all URLs that no route matches. Application limits count them too.
UNMATCHED = Route("(no route)", "", "*")


@dataclass(frozen=True, slots=True)
class InForce:
    """One limit of one route."""

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

    @property
    def said(self) -> str:
        """All conditions, for people."""
        return "; ".join(("dry run",) * self.dry_run + self.conditions)


@click.command()
@click.option("--endpoint", help="Only this endpoint.")
@click.option("--path", help="Only routes with this rule, or whose rule matches this path.")
@click.option("--method", help="Only this method.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_appcontext
def limits(endpoint: str | None, path: str | None, method: str | None, as_json: bool) -> None:
    """List all routes with their limits, and those without any."""
    states = limiters()
    listed = list(_filtered(routes(current_app), endpoint, path, method))
    found = {
        route: [limit for name, state in states.items() for limit in _in_force(name, state, route)]
        for route in listed
    }
    if endpoint is path is method is None:
        unmatched = [limit for n, state in states.items() for limit in _in_force(n, state, None)]
        if unmatched:
            found[UNMATCHED] = unmatched
    elif not found:
        raise Failure("No route matches these options. Without options, all routes are listed.", 1)
    if as_json:
        print_json({"routes": [_as_data(route, found[route], states) for route in found]})
    else:
        _print(found, states)


def _filtered(
    listed: Iterable[Route], endpoint: str | None, path: str | None, method: str | None
) -> Iterator[Route]:
    """Yield the routes that match the options."""
    adapter = current_app.url_map.bind(current_app.config["SERVER_NAME"] or "localhost")
    asked = None if method is None else counted_as(method.upper())
    for route in listed:
        if (
            endpoint in (None, route.endpoint)
            and asked in (None, route.method)
            and (path is None or _serves(adapter, route, path))
        ):
            yield route


def _serves(adapter: MapAdapter, route: Route, path: str) -> bool:
    if path == route.rule:
        return True
    try:
        rule, _ = adapter.match(path, route.method, return_rule=True)
    except (HTTPException, RoutingException):
        return False
    return rule.rule == route.rule and rule.endpoint == route.endpoint


def _in_force(limiter: str, state: Enforcer, route: Route | None) -> Iterator[InForce]:
    if route is None:
        bounds = state.planner.unmatched()
    else:
        bounds = state.planner.plan(route.endpoint, route.method).bounds
    for bound in bounds:
        for limit, text in _limits(bound):
            yield InForce(
                route=route or UNMATCHED,
                limiter=limiter,
                limit=text,
                name=None if limit is None else limit.name,
                source=bound.source,
                key=name_of(bound.key_func),
                scope=bound.scope,
                cost="1" if isinstance(limit, AtOnce) else cost_of(bound),
                conditions=tuple(_conditions(bound, limit)),
                dry_run=bound.shadow,
                enabled=state.config.enabled,
            )


def _limits(bound: BoundRule) -> Iterator[tuple[Limit | None, str]]:
    """Yield each limit, if it is known, and its text.

    For a function, these are the limits that it returns now, if it needs no request.
    """
    if bound.fixed is not None:
        for limit, *_ in bound.fixed:
            yield limit, str(limit)
        return
    function = name_of(bound.rule.limits)
    found = limits_now(bound)
    if found is None:
        yield None, f"limit from {function}"
    elif not found:
        yield None, f"none now, from {function}"
    for limit in found or ():
        yield limit, f"{limit}, from {function}"


def cost_of(bound: BoundRule) -> str:
    """Return the cost, or the name of the function that returns it."""
    cost = bound.cost
    return str(cost) if isinstance(cost, int) else f"{name_of(cost)}()"


def _conditions(bound: BoundRule, limit: Limit | None) -> Iterator[str]:
    rule = bound.rule
    if isinstance(limit, AtOnce):
        yield f"holds {float(limit.holds):g} s"
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
    if bound.ban is not None:
        yield f"ban after {bound.ban.ban}"
    if bound.lease:
        never = [limit.name for limit, *_ in bound.fixed or () if not bound.lease_of(limit)]
        unless = f", never for {' and '.join(never)}" if never else ""
        if bound.workers is None:
            unless = ", if the number of workers is known"
        yield f"lease {bound.lease:g} s{unless}"


def _as_data(route: Route, found: list[InForce], states: Mapping[str, Enforcer]) -> dict[str, Any]:
    return {
        "rule": route.rule,
        "endpoint": route.endpoint or None,
        "method": route.method,
        "limited": any(limit.enabled and not limit.dry_run for limit in found),
        "exempt": not found and exempt_in(states, route),
        "partly_exempt": bool(found) and exempt_in(states, route),
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
    every = [limit for limits_of in found.values() for limit in limits_of]
    # Columns that say the same in every row are left out.
    unsaid = set() if len(states) > 1 else {"limiter"}
    unsaid |= set() if any(limit.cost != "1" for limit in every) else {"cost"}
    unsaid |= set() if any(limit.said for limit in every) else {"conditions"}
    headings = tuple(heading for heading in _HEADINGS if heading not in unsaid)
    rows, styles = [], []
    for route, limits_of in found.items():
        for row, style in _rows(route, limits_of, is_exempt=exempt_in(states, route)):
            rows.append(tuple(row[heading] for heading in headings))
            styles.append(style)
    numbers = (
        frozenset(("cost",)) if all(limit.cost.isdecimal() for limit in every) else frozenset()
    )
    paths = frozenset(("route",))
    print_table(Table("", headings, rows, numbers, styles, paths, group=2))
    bare = sum(_BARE in row for row in rows)
    if bare:
        click.echo(f"\n{counted(bare, 'route has', 'routes have')} no limit.")
    for name, state in states.items():
        bans = [str(bound.ban.ban) for bound in state.planner.bans if bound.ban is not None]
        if bans:
            click.echo()
            print_text(f"The Limiter {name!r} bans clients after {', and after '.join(bans)}.")
        if not state.config.enabled:
            click.echo()
            print_text(f"The Limiter {name!r} enforces nothing: BUCKET_ENABLED is False.")


def _rows(
    route: Route, found: list[InForce], *, is_exempt: bool
) -> Iterator[tuple[dict[str, str], str]]:
    """Yield the rows of a route by heading, each with its style."""
    first = dict.fromkeys(_HEADINGS, "-") | {"route": route.rule, "method": route.method}
    if not found:
        yield first | {"limit": "exempt" if is_exempt else _BARE}, "dim" if is_exempt else "yellow"
        return
    if is_exempt:
        yield first | {"limit": _PARTLY}, "dim"
    for n, limit in enumerate(found):
        yield (
            {
                "route": route.rule if n == 0 and not is_exempt else "",
                "method": route.method if n == 0 and not is_exempt else "",
                "limit": limit.limit,
                "key": limit.key,
                "cost": limit.cost,
                "source": limit.source,
                "conditions": limit.said or "-",
                "limiter": limit.limiter,
            },
            "dim" if limit.dry_run or not limit.enabled else "",
        )
