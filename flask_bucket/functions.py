"""Functions that users pass in: checked, called without awaiting, and unwrapped."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial, wraps
from typing import Any

from flask import current_app

from .errors import ConfigError

#: The argument that each function is called with; None for those called without any.
ARGUMENT: dict[str, str | None] = {
    "rule": None,
    "key_func": None,
    "cost": None,
    "exempt_when": None,
    "error_message": None,
    "A request filter": None,
    "deduct_when": "the response",
    "on_breach": "the Decision",
    "scope": "the endpoint",
}


def checked_function(what: str, function: Any) -> None:
    """Check a function where it is written, instead of at the first request.

    :param what: one of ``ARGUMENT``.
    :raises ConfigError: if it is no function, or cannot be called as it will be.
    """
    if not callable(function):
        raise ConfigError(f"{what} is a function to be called, not {function!r}.")
    argument = ARGUMENT[what]
    try:
        # A decorator that fills in arguments has a signature of its own.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError, RuntimeError):
        return  # written in C, or a proxy for what only a request has
    try:
        signature.bind(*(() if argument is None else (argument,)))
    except TypeError as error:
        name = getattr(function, "__qualname__", repr(function))
        raise ConfigError(
            f"{what} is called {'without arguments' if argument is None else f'with {argument}'}, "
            f"and {name}{signature} cannot be: {error}. A function of no request's own arguments "
            "reads flask.request, flask.g or what functools.partial gives it."
        ) from None


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that can be called without awaiting it."""
    if not inspect.iscoroutinefunction(function):
        return function

    @wraps(function)
    def awaited(*args: Any) -> Any:
        called = partial(current_app.ensure_sync(function), *args)
        if not _loop_runs():
            return called()
        # A block or a plain function within an async view: its loop can await nothing from here.
        # Another thread can, and sees the same request. The loop stands still until it is done.
        with ThreadPoolExecutor(max_workers=1) as thread:
            return thread.submit(copy_context().run, called).result()

    return awaited


def _loop_runs() -> bool:
    """Return whether this thread is within an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def is_same(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Return whether two functions are the same, also after :func:`plain`."""
    return one == other or _written(one) == _written(other)


def _written(function: Callable[..., Any]) -> Callable[..., Any]:
    written = getattr(function, "__wrapped__", None)
    return written if inspect.iscoroutinefunction(written) else function


def chain(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield a function and everything it wraps, from the outside in."""
    seen: set[int] = set()
    current: Any = function
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        if isinstance(current, partial):
            current = current.func
        else:
            current = getattr(current, "__func__", None) or getattr(current, "__wrapped__", None)


def is_application(app: object) -> bool:
    """Return whether an object is a Flask application, by its attributes.

    Its class is no sign: instrumentation may replace ``flask.Flask`` before or after our import.
    """
    return hasattr(app, "wsgi_app") and hasattr(app, "extensions")


def is_view(target: object) -> bool:
    """Return whether a target may stand for a view. Classes and applications are called too."""
    return callable(target) and not (isinstance(target, type) or is_application(target))
