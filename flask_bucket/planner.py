"""Planner: which rules apply to an endpoint and method, and what an exemption leaves out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary

from flask import Flask

from .bans import Ban, bans_set
from .bound import OF_LIMITER, BoundBan, BoundRule, Source
from .config import Config
from .decorators import (
    NOT_EXEMPT,
    BlueprintLimit,
    Decoration,
    DispatchLimit,
    Exemption,
    Registry,
    View,
)
from .endpoints import Endpoints, blueprint_names
from .keys import SCOPE_MARK, spelled
from .plans import BEFORE, BLOCK, Place, Plan, Point
from .rules import METHODS, Rule, checked_scope, counted_as, rules_set


class Planner:
    """Makes the plans of one application, each once.

    :param hook: the ``before_request`` function that charges the point ``BEFORE``.
    """

    def __init__(
        self, app: Flask, registry: Registry, config: Config, hook: Callable[[], Any]
    ) -> None:
        self._app = app
        self._registry = registry
        self._endpoints = Endpoints(app, registry)
        self._hook = hook
        self._default = rules_set("BUCKET_DEFAULT_LIMITS", config.default_limits, registry.default)
        self._application = rules_set(
            "BUCKET_APPLICATION_LIMITS", config.application_limits, registry.application
        )
        heads = {"HEAD"} if "GET" in config.exempt_methods else ()  # HEAD counts as GET
        self._exempt_methods = frozenset(config.exempt_methods).union(heads)
        own = [rule.methods for rule in self._application if rule.methods is not None]
        self._known_methods = self._exempt_methods.union(METHODS, *own)
        self._config = config
        bans = bans_set("BUCKET_BANS", config.bans, registry.bans)
        rules = [Rule(ban.after, key_func=ban.key_func, ban=ban) for ban in bans]
        #: The Limiter's bans, as :attr:`Point.bans` has them.
        self.bans = _present(self._bind(rules, "application", OF_LIMITER, None, "GET"))
        self._version = registry.version
        self._plans: dict[tuple[str | None, str], Plan] = {}
        self._unplanned: WeakKeyDictionary[Decoration, dict[tuple[str | None, str], Point]] = (
            WeakKeyDictionary()
        )

    def plan(self, endpoint: str | None, method: str) -> Plan:
        """Return the plan for a request."""
        method = self._known(endpoint, method)
        view = self._app.view_functions.get(endpoint) if endpoint is not None else None
        if self._version != self._registry.version:
            self._version = self._registry.version
            self._plans.clear()
        plan = self._plans.get((endpoint, method))
        if plan is None or plan.view is not view:
            plan = self._plans[endpoint, method] = self._make(endpoint, view, method)
        return plan

    def unmatched(self) -> tuple[BoundRule, ...]:
        """Return the rules for URLs that no route matches, each once, whatever its methods."""
        found: list[BoundRule] = []
        for method in ("GET", *sorted(self._known_methods)):
            seen = {id(bound.rule) for bound in found}
            bounds = self.plan(None, method).bounds
            found += [bound for bound in bounds if id(bound.rule) not in seen]
        return tuple(found)

    def unplanned(self, decoration: Decoration, endpoint: str | None, method: str) -> Point:
        """Return the point of a decorated function that is called by the view or its class."""
        method = self._known(endpoint, method)
        known = self._unplanned.setdefault(decoration, {})
        if (endpoint, method) not in known:
            scope = f"{spelled(endpoint or '')}{SCOPE_MARK}{spelled(decoration.name)}"
            bounds = _present(self._bind(decoration.rules, "function", scope, endpoint, method))
            known[endpoint, method] = self._point(decoration, bounds, ends_request=False)
        return known[endpoint, method]

    def block(self, rules: Sequence[Rule], endpoint: str | None, method: str) -> Point:
        """Return the point of a ``with`` block, whose rules have scopes of their own."""
        bounds = _present(self._bind(rules, "block", "", endpoint, self._known(endpoint, method)))
        return self._point(BLOCK, bounds, ends_request=False)

    def _point(
        self, place: Place, bounds: Iterable[BoundRule], *, ends_request: bool = True
    ) -> Point:
        return Point(place, tuple(bounds), ends_request, self.bans)

    def is_exempt(self, endpoint: str, view: View, method: str) -> bool:
        """Return whether somebody said that an endpoint is to be free of some limits."""
        return self._exemptions(endpoint, view, method)[-1] != NOT_EXEMPT

    def _exemptions(self, endpoint: str, view: View, method: str) -> list[Exemption]:
        levels = self._endpoints.exemptions(endpoint, view, method)
        return [Exemption()] * len(levels) if method in self._exempt_methods else levels

    def _known(self, endpoint: str | None, method: str) -> str:
        """Return the method that plans are made for. Where no route was found, it may be any text,
        and each would have a plan of its own: one that nobody knows counts as GET.
        """
        return "GET" if endpoint is None and method not in self._known_methods else method

    def _make(self, endpoint: str | None, view: View | None, method: str) -> Plan:
        """Make a plan: application and default limits, the blueprints', then the view's own."""
        if endpoint is None or view is None:
            free = method in self._exempt_methods
            bounds = () if free else self._of_application(None, method)
            return Plan(view, method, (self._point(BEFORE, bounds),) if bounds else ())
        exemptions = self._exemptions(endpoint, view, method)
        own, decorated = self._own(endpoint, view, method)
        charged = {bound for _, bounds in decorated for bound in bounds}
        hooked, default = self._inherited(endpoint, own, method, exemptions)
        before = [bound for bound in own if bound not in charged] + default
        if not exemptions[-1].application:
            before = [*self._of_application(endpoint, method), *before]
        at_hooks = [(p, bounds) for p, bounds in self._at_hooks(endpoint, before, hooked) if bounds]
        points = [self._point(place, bounds) for place, bounds in (*at_hooks, *decorated)]
        return Plan(view, method, tuple(points))

    def _of_application(self, endpoint: str | None, method: str) -> tuple[BoundRule, ...]:
        scope = f"{SCOPE_MARK}application"
        return _present(self._bind(self._application, "application", scope, endpoint, method))

    def _own(
        self, endpoint: str, view: View, method: str
    ) -> tuple[list[BoundRule], list[tuple[Place, list[BoundRule]]]]:
        """Bind the view's own rules: all of them, and those of each decorator, outer first."""
        own: list[BoundRule] = []
        decorated: list[tuple[Place, list[BoundRule]]] = []
        for function, scope in self._endpoints.functions(endpoint, view, method):
            found: Sequence[Decoration | DispatchLimit] = self._endpoints.decorations(function)
            if function is not view:
                found = [*found, *self._endpoints.dispatched(function, view, method)]
            rules = [rule for decoration in found for rule in decoration.rules]
            rules += self._endpoints.misplaced(endpoint, function, method)
            bounds = self._bind(rules, "view", scope, endpoint, method)
            own += _present(bounds)
            groups = _grouped([(decoration, len(decoration.rules)) for decoration in found], bounds)
            decorated += reversed(groups.items())
        return own, decorated

    def _inherited(
        self, endpoint: str, own: list[BoundRule], method: str, exemptions: list[Exemption]
    ) -> tuple[dict[Place, list[BoundRule]], list[BoundRule]]:
        """Bind the blueprints' and default rules that the view's own leave in force.

        :param exemptions: see :meth:`Endpoints.exemptions`.
        :returns: the blueprints' rules by the hook that charges them, and the default ones.
        """
        in_force: Sequence[BoundRule] = own
        hooked: dict[Place, list[BoundRule]] = {}
        for n, blueprint in enumerate(self._endpoints.blueprints(endpoint), 1):
            if any(bound.rule.override_defaults for bound in in_force):
                return hooked, []
            if exemptions[n].blueprint:
                continue
            mark = "blueprint" if n == 1 else f"blueprint-{n}"
            scope = f"{spelled(endpoint)}{SCOPE_MARK}{mark}"
            limits = self._registry.blueprints.get(blueprint, [])
            rules = [rule for limit in limits for rule in limit.rules]
            bounds = self._bind(rules, "blueprint", scope, endpoint, method)
            in_force = _present(bounds)
            hooked |= _grouped([(limit, len(limit.rules)) for limit in limits], bounds)
        if exemptions[-1].default or any(bound.rule.override_defaults for bound in in_force):
            return hooked, []
        scope = f"{spelled(endpoint)}{SCOPE_MARK}default"
        return hooked, [*_present(self._bind(self._default, "default", scope, endpoint, method))]

    def _at_hooks(
        self, endpoint: str, before: list[BoundRule], hooked: dict[Place, list[BoundRule]]
    ) -> list[tuple[Place, list[BoundRule]]]:
        """Return what is charged at each hook: together, where no other hook stands between."""
        points: list[tuple[Place, list[BoundRule]]] = [(BEFORE, before)]
        joined, missing = False, dict(hooked)
        for hook in self._hooks(endpoint):
            if not isinstance(hook, BlueprintLimit):
                joined = hook is self._hook
            elif (bounds := missing.pop(hook, None)) is None:
                continue  # a limit further in overrides this one, or it is another Limiter's
            elif joined:
                points[-1][1].extend(bounds)
            else:
                points.append((hook, bounds))
                joined = True
        for bounds in missing.values():  # put on a blueprint that takes no more hooks
            before.extend(bounds)
        return points

    def _hooks(self, endpoint: str) -> Iterator[Any]:
        """Yield the functions that Flask calls before the view, in its order.

        Flask has no public way to ask. Its table of hooks is read here and nowhere else. If our
        own hook is not found there, what could be charged together is charged one by one.
        """
        for name in (None, *reversed(blueprint_names(endpoint))):
            yield from self._app.before_request_funcs.get(name, ())

    def _bind(
        self,
        rules: Iterable[Rule],
        source: Source,
        scope: str,
        endpoint: str | None,
        method: str,
    ) -> list[BoundRule | None]:
        """Bind each rule that serves a method. Names do not depend on which these are."""
        bounds: list[BoundRule | None] = []
        names: dict[str, set[str]] = {}
        callables: Counter[str] = Counter()
        for rule in rules:
            place = scope if rule.scope is None else spelled(_scope_of(rule, endpoint))
            if rule.per_method:
                place += SCOPE_MARK + counted_as(method)
            if callable(rule.limits):
                # The names that it will return are not known, so they get a scope of their own.
                # The first in an explicit scope has that scope: other views may share its buckets.
                callables[place] += 1
                n = callables[place]
                if n > 1 or rule.scope is None:
                    place += f"{SCOPE_MARK}callable" + (f"-{n}" if n > 1 else "")
            bound = BoundRule.of(
                rule,
                source,
                place,
                key_func=self._registry.key_func,
                dry_run=self._config.dry_run,
                lease=self._config.lease,
                workers=self._config.known_workers,
                names=names.setdefault(place, set()),
            )
            if isinstance(rule.ban, Ban):
                ban = BoundBan.of(rule.ban, bound, names.setdefault(f"{place} ban", set()))
                bound = replace(bound, ban=ban)
            bounds.append(bound if rule.serves(method) else None)
        return bounds


def _scope_of(rule: Rule, endpoint: str | None) -> str:
    return checked_scope(rule.scope(endpoint or "") if callable(rule.scope) else rule.scope)


def _present(bounds: Iterable[BoundRule | None]) -> tuple[BoundRule, ...]:
    return tuple(bound for bound in bounds if bound is not None)


def _grouped(
    places: Iterable[tuple[Place, int]], bounds: Sequence[BoundRule | None]
) -> dict[Place, list[BoundRule]]:
    """Deal rules out to the places that they came from, each with the number of its rules."""
    rest = iter(bounds)
    return {place: [*_present(islice(rest, number))] for place, number in places}
