"""The check of ``flask bucket doctor`` that looks at flask-cors: FB205.

A browser shows scripts of another origin only what the server allows: the response as a whole, and
each of its headers. ``CORS(app)`` allows it with a hook, ``@cross_origin()`` around the view.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flask import Flask, Response

from ..endpoints import blueprint_names
from ..enforcing import Enforcer
from ..functions import chain
from ..headers import examples
from .findings import Finding
from .states import Route, routes

_ALLOWED = "Access-Control-Allow-Origin"
_EXPOSED = "Access-Control-Expose-Headers"


def cors_checks(state: Enforcer) -> Iterator[Finding]:
    """Check whether scripts of other origins can read refusals, and the headers of the limits."""
    for route in routes(state.app):
        if state.planner.plan(route.endpoint, route.method).bounds:
            finding = _finding(state, route)
            if finding is not None:
                yield finding
                return  # the next route would say the same again


def _finding(state: Enforcer, route: Route) -> Finding | None:
    answers = _answers(state.app, route)
    if answers is None:
        return None
    allowed, refused = answers
    chosen = state.config.headers
    ours = [name for name, _ in examples(chosen, refused=True)]
    who = f"Scripts of other origins call {route.method} {route.rule} and others, and cannot read"
    if _ALLOWED not in refused.headers:
        advice = (
            "@cross_origin() allows the answers of its view, and a refusal is not one. Use "
            f"CORS(app, expose_headers={ours!r}) in its place."
        )
        return Finding("FB205", "warning", f"{who} refusals.", advice)
    hidden = _hidden(refused, ours)
    hidden += _hidden(allowed, [name for name, _ in examples(chosen, refused=False)])
    if not hidden:
        return None
    what = f"{who} {', '.join(dict.fromkeys(hidden))}."
    return Finding("FB205", "warning", what, f"Expose them: CORS(app, expose_headers={ours!r}).")


def _hidden(response: Response, names: list[str]) -> list[str]:
    """Return the headers that scripts of other origins cannot read."""
    exposed = {name.strip() for name in response.headers.get(_EXPOSED, "").lower().split(",")}
    return [] if "*" in exposed else [name for name in names if name.lower() not in exposed]


def _answers(app: Flask, route: Route) -> tuple[Response, Response] | None:
    """Return an answer of the view and a refusal, as flask-cors marks them. The view is not called.

    :returns: None if scripts of other origins cannot read the answer anyway. Origins that are
        regular expressions are not seen, since it is not known what they match.
    """
    for origin in ({}, {"Origin": "https://shop.example"}):
        with app.test_request_context(route.rule, method=route.method, headers=origin):
            allowed = _by_hooks(app, route, _by_decorator(app, route))
            refused = _by_hooks(app, route, Response())
        if _ALLOWED in allowed.headers:
            return allowed, refused
    return None


def _by_hooks(app: Flask, route: Route, response: Any) -> Response:
    """Return a response after the hooks of flask-cors."""
    for name in (None, *blueprint_names(route.endpoint)):
        for hook in app.after_request_funcs.get(name, ()):
            if getattr(hook, "__module__", "").partition(".")[0] == "flask_cors":
                response = hook(response)
    return response  # type: ignore[no-any-return]  # flask-cors has no types


def _by_decorator(app: Flask, route: Route) -> Response:
    """Return a response to which flask-cors's decorator of the view, if it has one, adds."""
    view = app.view_functions[route.endpoint]
    method = getattr(getattr(view, "view_class", None), route.method.lower(), None)
    for function in (*chain(view), *(chain(method) if method else ())):
        options = _options_of(function)
        if options is not None:
            from flask_cors import cross_origin

            # The same decorator around a view of our own.
            return cross_origin(**options)(lambda: Response())()
    return Response()


def _options_of(function: Callable[..., Any]) -> Mapping[str, Any] | None:
    """Return the options of flask-cors's decorator, if a function is one.

    flask-cors has no public way to ask. A closure of another kind has no such options, and then
    the decorator is not seen.
    """
    if getattr(function, "__globals__", {}).get("__name__") != "flask_cors.decorator":
        return None
    found: Mapping[str, Any] | None = inspect.getclosurevars(function).nonlocals.get("_options")
    return found
