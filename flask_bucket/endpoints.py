"""Endpoints: the functions and blueprints that serve one, and the limits on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flask import Flask
from flask.sansio.blueprints import Blueprint
from flask.views import http_method_funcs

from .decorators import NOT_EXEMPT, Decoration, DispatchLimit, Exemption, Registry, View
from .functions import chain
from .keys import SCOPE_MARK, spelled
from .limit_decorator import LimitDecorator
from .rules import Rule


class Endpoints:
    """The endpoints of one application, as the limits and exemptions of one Limiter see them."""

    def __init__(self, app: Flask, registry: Registry) -> None:
        self._app = app
        self._registry = registry
        registry.named.clear()

    def functions(self, endpoint: str, view: View, method: str) -> Iterator[tuple[View, str]]:
        """Yield the functions that answer, each with the scope of the limits on it."""
        yield view, spelled(endpoint)
        view_class = getattr(view, "view_class", None)
        verb = method.lower()
        if method == "HEAD" and not hasattr(view_class, "head"):
            verb = "get"
        for name in ("dispatch_request", verb):
            if (function := getattr(view_class, name, None)) is not None:
                yield function, f"{spelled(endpoint)}{SCOPE_MARK}{name}"

    def decorations(self, function: View) -> list[Decoration]:
        """Return the decorators that a call of a function runs through, from the innermost out."""
        found = [d for f in chain(function) if (d := self._registry.decoration(f))]
        found.reverse()
        return found

    def dispatched(self, function: View, view: View, method: str) -> list[DispatchLimit]:
        """Return the limits that a view's class puts on a method when it calls it.

        Flask-RESTful and Flask-RESTX do so with their attribute ``method_decorators``: a list, or
        a list for each method. Limits next to each other are charged together.
        """
        view_class = getattr(view, "view_class", None)
        given = getattr(view_class, "method_decorators", ())
        if isinstance(given, Mapping):
            given = given.get(method.lower(), ())
        if function is getattr(view_class, "dispatch_request", None):
            return []
        groups: list[list[Rule]] = [[]]
        for decorator in given:
            ours = isinstance(decorator, LimitDecorator) and decorator.registry is self._registry
            if ours:
                groups[-1] += decorator.rules
            else:
                groups.append([])
        return [DispatchLimit(tuple(rules)) for rules in groups if rules]

    def misplaced(self, endpoint: str, function: View, method: str) -> list[Rule]:
        """Return the rules of decorators above ``@app.route``, which Flask never calls.

        Such a wrapper serves no endpoint of this application, while the function that it wraps
        does. Other applications are not asked: nobody knows when one of them is no longer used.
        """
        if method == "OPTIONS" and not self._answers_options(endpoint):
            return []  # Flask's automatic answer reaches no view
        in_place = self.decorations(function)
        # The same decorations remember an inner function and the wrappers around it.
        found: dict[Decoration, tuple[Rule, ...]] = {}
        for inner in chain(function):
            for decoration in self._registry.decorations_of(inner):
                found.setdefault(decoration, _rules_above(decoration, inner, in_place))
        if not any(found.values()):
            return []
        serving = self._serving()
        lists: list[tuple[Rule, ...]] = []
        for decoration, above in found.items():
            # A factory that limits one function again for each application repeats itself.
            if id(decoration.wrapper()) not in serving and above not in lists:
                lists.append(above)
        rules = [rule for above in lists for rule in above]
        return [rule for n, rule in enumerate(rules) if not any(rule is r for r in rules[:n])]

    def _answers_options(self, endpoint: str) -> bool:
        """Return whether a view answers OPTIONS itself, at any of its URLs."""
        return not all(
            getattr(rule, "provide_automatic_options", False)
            for rule in self._app.url_map.iter_rules(endpoint)
        )

    def _serving(self) -> set[int]:
        """Return the identities of all functions that answer in the application."""
        return {
            id(f)
            for view in self._app.view_functions.values()
            for function in (view, *_verbs(view))
            for f in chain(function)
        }

    def blueprints(self, endpoint: str) -> list[Blueprint]:
        """Return the blueprints that an endpoint is nested in, the innermost first."""
        found = (self._app.blueprints.get(name) for name in blueprint_names(endpoint))
        return [blueprint for blueprint in found if blueprint is not None]

    def exemptions(self, endpoint: str, view: View, method: str) -> list[Exemption]:
        """Return the limits that an endpoint is free of, seen from each level out.

        The first is what its view is free of. The next adds the exemption of its innermost
        blueprint, and so on: an outer blueprint's exemption leaves the limits that an inner one
        has of its own.
        """
        if self._serves_files(endpoint):
            return [Exemption()] * (1 + len(self.blueprints(endpoint)))
        said = [
            exemption
            for function, _ in self.functions(endpoint, view, method)
            for f in chain(function)
            if (exemption := self._registry.exemption(f)) is not None
        ]
        levels = [said[0] if said else NOT_EXEMPT]
        for blueprint in self.blueprints(endpoint):
            levels.append(levels[-1].joined(self._registry.exemption(blueprint) or NOT_EXEMPT))
        return levels

    def _serves_files(self, endpoint: str) -> bool:
        if endpoint == "static":
            return self._app.has_static_folder
        blueprint = self._app.blueprints.get(endpoint.removesuffix(".static"))
        return endpoint.endswith(".static") and bool(blueprint and blueprint.has_static_folder)


def blueprint_names(endpoint: str) -> list[str]:
    """Return the names of the blueprints that an endpoint is nested in, the innermost first."""
    names = []
    while "." in endpoint:
        endpoint = endpoint.rpartition(".")[0]
        names.append(endpoint)
    return names


def _start_alike(rules: tuple[Rule, ...], others: tuple[Rule, ...]) -> bool:
    """Return whether rules start with the same objects. Equal ones are different rules."""
    return all(rule is other for rule, other in zip(rules, others, strict=False))


def _rules_above(
    decoration: Decoration, inner: View, in_place: list[Decoration]
) -> tuple[Rule, ...]:
    """Return the rules of a decoration around a function that its view does not run through.

    :param inner: the outermost function of the view that the decoration stands around.
    :param in_place: the decorations that the view runs through.
    """
    for placed in in_place:
        if placed.function == decoration.function:
            above = decoration.rules[len(placed.rules) :]
            return above if _start_alike(decoration.rules, placed.rules) else ()
        if placed.function == inner:
            return ()  # made of the same function for another endpoint
    return decoration.rules


def _verbs(view: View) -> Iterator[View]:
    """Yield the methods of a view's class, if it has one."""
    view_class = getattr(view, "view_class", None)
    for name in ("dispatch_request", *http_method_funcs):
        if (function := getattr(view_class, name, None)) is not None:
            yield function


def handles_errors(app: Flask, decoration: Decoration) -> bool:
    """Return whether a decorated function is an error handler of an application.

    Flask's table of error handlers is read here and nowhere else.
    """
    wrapper = decoration.wrapper()
    return any(
        wrapper is function
        for by_code in app.error_handler_spec.values()
        for by_class in by_code.values()
        for handler in by_class.values()
        for function in chain(handler)
    )
