"""Applications, and the Limiters that each one has."""

from __future__ import annotations

from collections.abc import Callable

from flask import Flask

from .current import current_application
from .enforcing import Enforcer
from .errors import ConfigError
from .moving import warn_of_leftovers

#: Where an application keeps its enforcers, among its extensions.
_EXTENSION = "flask_bucket"


class LimiterMissingError(ConfigError, RuntimeError):
    """An application was asked for a Limiter that it does not have."""


def enforcers_of(app: Flask, name: str | None = None) -> dict[str, Enforcer]:
    """Return the enforcers of an application, by the names of their Limiters.

    :param name: only that of the Limiter with this name.
    :raises LimiterMissingError: if there is none.
    """
    known: dict[str, Enforcer] = app.extensions.get(_EXTENSION, {})
    found = known if name is None else {n: e for n, e in known.items() if n == name}
    if not found:
        missing = f"The application {app.name!r} has no Limiter."
        if name is not None:
            missing = (
                f"The Limiter {name!r} does not know the application {app.name!r}, so its limits "
                "would not hold."
            )
        raise LimiterMissingError(
            f"{missing} Call limiter.init_app(app) where the application is made."
        )
    return found


def current_enforcer(name: str) -> Enforcer:
    """Return the enforcer of a Limiter in the current application.

    :raises LimiterMissingError: if ``init_app`` was not called for it.
    """
    app = current_application()
    known: dict[str, Enforcer] = app.extensions.get(_EXTENSION, {})
    return known.get(name) or enforcers_of(app, name)[name]


def add_enforcer(app: Flask, name: str, make: Callable[[], Enforcer]) -> None:
    """Make an enforcer, and keep it with its application.

    :raises RuntimeError: if the application has a Limiter of this name already.
    """
    known: dict[str, Enforcer] = app.extensions.setdefault(_EXTENSION, {})
    if name in known:
        raise RuntimeError(
            f"The application {app.name!r} has a Limiter named {name!r} already. "
            "Give a second one another name: Limiter(app, name='api')."
        )
    known[name] = make()
    if len(known) == 1:
        warn_of_leftovers(app.config, app.extensions)
