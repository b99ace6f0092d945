"""Plans: which rules apply to an endpoint and method, and where in the request each is charged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from flask import Flask
from flask.sansio.blueprints import Blueprint
from flask.views import http_method_funcs

from .bills import Point
from .keys import SCOPE_MARK, KeyFunc, spelled
from .registry import Decoration, Registry, View, chain
from .rules import BoundRule, Rule, Source, counted_as, tails


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The rules of one endpoint and method, bound."""

    #: The view that this was made for.
    view: View | None
    #: Charged before the request reaches its view.
    before: Point
    #: Charged at each decorator.
    at: Mapping[Decoration, Point]

    @property
    def bounds(self) -> tuple[BoundRule, ...]:
        """All of them, in the order in which they are charged."""
        points = (self.before, *self.at.values())
        return tuple(bound for point in points for bound in point.bounds)


class Planner:
    """Makes the plans of one application, each once."""

    def __init__(
        self,
        app: Flask,
        registry: Registry,
        *,
        key_func: KeyFunc,
        application: tuple[Rule, ...],
        default: tuple[Rule, ...],
        exempt_methods: Sequence[str],
        dry_run: bool,
    ) -> None:
        self._app = app
        self._registry = registry
        self._key_func = key_func
        self._application = application
        self._default = default
        self._exempt_methods = frozenset(exempt_methods)
        self._dry_run = dry_run
        registry.apps.add(app)
        self._version = registry.version
        self._plans: dict[tuple[str | None, str], Plan] = {}
        self._strays: WeakKeyDictionary[Decoration, dict[tuple[str | None, str], Point]] = (
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

    def _known(self, endpoint: str | None, method: str) -> str:
        """Return a method that routing let through: any at all may come in where it did not."""
        return "GET" if endpoint is None and method not in self._exempt_methods else method

    def stray(self, decoration: Decoration, endpoint: str | None, method: str) -> Point:
        """Bind the rules of a decorated function that is called by the view, or by its class."""
        method = self._known(endpoint, method)
        known = self._strays.setdefault(decoration, {})
        if (endpoint, method) not in known:
            function = decoration.function
            mark = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
            scope = f"{spelled(endpoint or '')}{SCOPE_MARK}{spelled(mark)}"
            bounds = self._bind(decoration.rules, "function", scope, method)
            known[endpoint, method] = Point.of(bounds)
        return known[endpoint, method]

    def _make(self, endpoint: str | None, view: View | None, method: str) -> Plan:
        if endpoint is None or view is None:
            free = method in self._exempt_methods
            return Plan(view, Point.of(() if free else self._of_application(method)), {})
        own, at = self._own(endpoint, view, method)
        charged = {bound for bounds in at.values() for bound in bounds}
        before = [bound for bound in own if bound not in charged]
        if not self.is_exempt(endpoint, view, method):
            before = [
                *self._of_application(method),
                *before,
                *self._inherited(endpoint, own, method),
            ]
        return Plan(view, Point.of(before), {d: Point.of(bounds) for d, bounds in at.items()})

    def _of_application(self, method: str) -> tuple[BoundRule, ...]:
        scope = f"{SCOPE_MARK}application"
        return self._bind(self._application, "application", scope, method)

    def _own(
        self, endpoint: str, view: View, method: str
    ) -> tuple[list[BoundRule], dict[Decoration, tuple[BoundRule, ...]]]:
        """Bind the view's own rules: all of them, and by the decorator that charges them."""
        own: list[BoundRule] = []
        at: dict[Decoration, tuple[BoundRule, ...]] = {}
        for function, scope in self._functions(endpoint, view, method):
            found = [d for f in chain(function) if (d := self._registry.decoration(f))]
            found.reverse()  # names are counted from the innermost decorator out
            rules = [rule for decoration in found for rule in decoration.rules]
            rules += self._misplaced(function, found, method)
            bound = {b.rule: b for b in self._bind(rules, "view", scope, method)}
            own += bound.values()
            for decoration in found:
                at[decoration] = tuple(bound[rule] for rule in decoration.rules if rule in bound)
        return own, at

    def _functions(self, endpoint: str, view: View, method: str) -> Iterator[tuple[View, str]]:
        """Yield the functions that answer, each with the scope of the limits on it."""
        yield view, spelled(endpoint)
        view_class = getattr(view, "view_class", None)
        verb = method.lower()
        if method == "HEAD" and not hasattr(view_class, "head"):
            verb = "get"
        for name in ("dispatch_request", verb):
            if (function := getattr(view_class, name, None)) is not None:
                yield function, f"{spelled(endpoint)}{SCOPE_MARK}{name}"

    def _misplaced(self, function: View, found: list[Decoration], method: str) -> list[Rule]:
        """Return the rules of decorators above ``@app.route``, which the view never runs through.

        Such a wrapper serves no endpoint, while the function that it wraps does.

        :param found: the decorations that the view does run through.
        """
        rules: list[Rule] = []
        if method == "OPTIONS":
            return rules  # most likely Flask's automatic answer, which reaches no view either
        # By identity, since views need not be hashable.
        inside = {id(decoration.function): decoration.rules for decoration in found}
        serving: set[int] | None = None
        for inner in chain(function):
            placed = inside.get(id(inner), ())
            for decoration in self._registry.decorations_of(inner):
                above = decoration.rules[len(placed) :]
                if not above or decoration.rules[: len(placed)] != placed:
                    continue  # nothing more, or made of the same function for another endpoint
                serving = self._serving() if serving is None else serving
                if id(decoration.wrapper()) not in serving:
                    rules += [rule for rule in above if rule not in rules]
        return rules

    def _serving(self) -> set[int]:
        """Return the identities of all functions that answer in any of the applications."""
        return {
            id(f)
            for app in self._registry.apps
            for view in app.view_functions.values()
            for function in (view, *_verbs(view))
            for f in chain(function)
        }

    def is_exempt(self, endpoint: str, view: View, method: str) -> bool:
        """Return whether application, blueprint and default limits leave an endpoint out."""
        is_exempt = self._registry.is_exempt
        return (
            method in self._exempt_methods
            or self._serves_files(endpoint)
            or any(
                is_exempt(f)
                for function, _ in self._functions(endpoint, view, method)
                for f in chain(function)
            )
            or any(is_exempt(blueprint) for blueprint in self._blueprints(endpoint))
        )

    def _serves_files(self, endpoint: str) -> bool:
        if endpoint == "static":
            return self._app.has_static_folder
        blueprint = self._app.blueprints.get(endpoint.removesuffix(".static"))
        return endpoint.endswith(".static") and bool(blueprint and blueprint.has_static_folder)

    def _blueprints(self, endpoint: str) -> Iterator[Blueprint]:
        """Yield the blueprints that an endpoint is nested in, the innermost first."""
        name = endpoint
        while "." in name:
            name = name.rpartition(".")[0]
            if (blueprint := self._app.blueprints.get(name)) is not None:
                yield blueprint

    def _inherited(self, endpoint: str, own: list[BoundRule], method: str) -> Iterator[BoundRule]:
        """Yield the blueprints' and default rules that the view's own leave in force."""
        level: Sequence[BoundRule] = own
        for n, blueprint in enumerate(self._blueprints(endpoint), 1):
            if any(bound.rule.override_defaults for bound in level):
                return
            mark = "blueprint" if n == 1 else f"blueprint-{n}"
            rules = self._registry.blueprints.get(blueprint, [])
            scope = f"{spelled(endpoint)}{SCOPE_MARK}{mark}"
            level = self._bind(rules, "blueprint", scope, method)
            yield from level
        if not any(bound.rule.override_defaults for bound in level):
            scope = f"{spelled(endpoint)}{SCOPE_MARK}default"
            yield from self._bind(self._default, "default", scope, method)

    def _bind(
        self, rules: Iterable[Rule], source: Source, scope: str, method: str
    ) -> tuple[BoundRule, ...]:
        """Bind those rules that serve a method; names do not depend on which these are."""
        bound = []
        taken: dict[str, set[str]] = {}
        callables = 0
        for rule in rules:
            at = scope if rule.scope is None else spelled(rule.scope)
            if rule.per_method:
                at += SCOPE_MARK + counted_as(method)
            if not callable(rule.limits):
                fixed = tails(at, rule.limits, taken.setdefault(at, set()))
            else:
                # What it will return is not known, so its names get a scope of their own.
                fixed = None
                if rule.scope is None:
                    callables += 1
                    at += f"{SCOPE_MARK}callable" + (f"-{callables}" if callables > 1 else "")
            if rule.serves(method):
                key_func = rule.key_func or self._key_func
                shadow = rule.dry_run or self._dry_run
                bound.append(BoundRule(rule, source, key_func, at, fixed, shadow))
        return tuple(bound)


def _verbs(view: View) -> Iterator[View]:
    """Yield the methods of a view's class, if it has one."""
    view_class = getattr(view, "view_class", None)
    for name in ("dispatch_request", *http_method_funcs):
        if (function := getattr(view_class, name, None)) is not None:
            yield function
