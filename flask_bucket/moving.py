"""Messages for users who move over from Flask-Limiter: what to write in place of its names.

Nothing here decides about a request. docs/migration.md has the whole story.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from .errors import ConfigError
from .masking import shown

Method = TypeVar("Method", bound=Callable[..., Any])

logger = logging.getLogger("flask_bucket")

CONSTRUCTOR = "Expected Limiter(app, key_func=...): the application first, everything else by name."

_ALWAYS_BUCKETS = "leave it out: every limit is a token bucket"
_JUDGED_TOGETHER = "leave it out: all limits at one point are decided together"
_WHOLE_SECONDS = "leave it out: Retry-After is in whole seconds"
_BY_ENDPOINT = "leave it out: views are told apart by their endpoint, or by a limit's scope"
_OWN_NAMES = "set BUCKET_HEADERS = {'limit': 'X-My-Limit'}"
_BANS = "'20/hour for 1 day'"
_ON_BREACH = "on_breach, which answers the banned too"


def _in_a_rule(limits: str, option: str) -> str:
    return f"write {limits}=[Rule('5/second', {option}=...)]"


#: Arguments of Flask-Limiter's constructor, and what to write instead.
ARGUMENTS: Mapping[str, str] = {
    "storage_uri": "write redis='redis://...', or set BUCKET_REDIS_URL",
    "storage_options": "set BUCKET_REDIS_OPTIONS",
    "strategy": _ALWAYS_BUCKETS,
    "headers_enabled": "leave it out: headers are on, and BUCKET_HEADERS = () is off",
    "header_name_mapping": _OWN_NAMES,
    "swallow_errors": "leave it out: requests pass while Redis is away, unless BUCKET_ON_ERROR "
    "says otherwise",
    "fail_on_first_breach": _JUDGED_TOGETHER,
    "in_memory_fallback": "set BUCKET_ON_ERROR = 'local'",
    "in_memory_fallback_enabled": "set BUCKET_ON_ERROR = 'local'",
    "retry_after": _WHOLE_SECONDS,
    "key_prefix": "set BUCKET_KEY_PREFIX",
    "request_identifier": _BY_ENDPOINT,
    "enabled": "set BUCKET_ENABLED, or assign to limiter.enabled",
    "meta_limits": f"write bans={_BANS}",
    "on_meta_breach": f"write {_ON_BREACH}",
    "auto_check": "leave it out: limits always hold, and BUCKET_ENABLED = False is off",
    "global_limits": "write default_limits",
    **{
        f"{limits}_{option}": _in_a_rule(limits, option)
        for limits in ("default_limits", "application_limits")
        for option in ("per_method", "exempt_when", "deduct_when", "cost")
    },
}

#: Arguments of its decorators.
OF_LIMIT: Mapping[str, str] = {
    "limit_value": "write the limit first, as in limiter.limit('5/second')",
    "meta_limits": f"write ban={_BANS}",
}

#: Its configuration keys, without their prefix, and what to set instead.
KEYS: Mapping[str, str] = {
    "DEFAULT": "set BUCKET_DEFAULT_LIMITS",
    "APPLICATION": "set BUCKET_APPLICATION_LIMITS",
    "GLOBAL": "set BUCKET_DEFAULT_LIMITS",
    "ENABLED": "set BUCKET_ENABLED",
    "KEY_PREFIX": "set BUCKET_KEY_PREFIX",
    "KEY_FUNC": "write Limiter(app, key_func=...)",
    "STORAGE_URI": "set BUCKET_REDIS_URL",
    "STORAGE_URL": "set BUCKET_REDIS_URL",
    "STORAGE_OPTIONS": ARGUMENTS["storage_options"],
    "STRATEGY": _ALWAYS_BUCKETS,
    "HEADERS_ENABLED": ARGUMENTS["headers_enabled"],
    "HEADER_LIMIT": _OWN_NAMES,
    "HEADER_REMAINING": _OWN_NAMES,
    "HEADER_RESET": _OWN_NAMES,
    "HEADER_RETRY_AFTER": _OWN_NAMES,
    "HEADER_RETRY_AFTER_VALUE": _WHOLE_SECONDS,
    "SWALLOW_ERRORS": ARGUMENTS["swallow_errors"],
    "FAIL_ON_FIRST_BREACH": _JUDGED_TOGETHER,
    "ON_BREACH_CALLBACK": "write Limiter(app, on_breach=...)",
    "IN_MEMORY_FALLBACK": ARGUMENTS["in_memory_fallback"],
    "IN_MEMORY_FALLBACK_ENABLED": ARGUMENTS["in_memory_fallback"],
    "REQUEST_IDENTIFIER": _BY_ENDPOINT,
    "META": f"set BUCKET_BANS = {_BANS}",
    "ON_META_BREACH_CALLBACK": f"write Limiter(app, on_breach=...): {_ON_BREACH}",
    **{
        f"{key}_{option.upper()}": _in_a_rule(limits, option)
        for key, limits in (
            ("DEFAULTS", "default_limits"),
            ("APPLICATION", "application_limits"),
        )
        for option in ("per_method", "exempt_when", "deduct_when", "cost")
    },
}

#: Attributes of its Limiter.
ATTRIBUTES: Mapping[str, str] = {
    "storage": "charge with limiter.consume, look with limiter.peek, and forget with limiter.reset",
    "limiter": "charge with limiter.consume, and look with limiter.peek",
    "check": "limits are checked by themselves; charge a block with limiter.limit(..., scope=...)",
    "current_limit": "read limiter.current.binding",
    "current_limits": "read limiter.current.outcomes",
    "context": "read limiter.current",
    "identify_request": "read request.endpoint",
    "limit_manager": "run 'flask bucket limits'",
    "logger": "use logging.getLogger('flask_bucket')",
    "app": "keep the application yourself: one Limiter may serve several",
    "initialized": "look into app.extensions['flask_bucket']",
}


def missing_attribute(name: str) -> AttributeError:
    """Return the error for an attribute that a Limiter does not have."""
    said = f"Limiter has no attribute {name!r}."
    if instead := ATTRIBUTES.get(name):
        said += f" It was Flask-Limiter's: here, {instead}."
    return AttributeError(said)


def no_application(given: object) -> ConfigError:
    """Return the error for something that stands where the application is expected."""
    return ConfigError(f"Limiter was given {shown(given)} as its application. {CONSTRUCTOR}")


def hinting(
    unknown: Mapping[str, str], misplaced: Callable[[object], ConfigError]
) -> Callable[[Method], Method]:
    """Make a decorator of a method: whoever calls it as Flask-Limiter's is told what to write.

    Other wrong calls get Python's own TypeError.

    :param unknown: arguments by name that the method does not have, and what to write instead.
    :param misplaced: returns the error for a value without a name where none is expected.
    """

    def decorator(method: Any) -> Any:
        parameters = [*inspect.signature(method).parameters.values()][1:]
        in_order = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]

        @wraps(method)
        def called(self: object, *args: Any, **kwargs: Any) -> Any:
            if old := sorted(unknown.keys() & kwargs.keys()):
                instead = "; for ".join(f"{name}, {unknown[name]}" for name in old)
                raise ConfigError(f"Arguments of Flask-Limiter were given. Here, for {instead}.")
            if len(args) > len(in_order):
                raise misplaced(args[len(in_order)])
            if args and not kwargs.keys().isdisjoint(in_order[: len(args)]):
                raise misplaced(args[0])
            return method(self, *args, **kwargs)

        return called

    return decorator


def without_a_name(given: object) -> ConfigError:
    """Return the error for a further value without a name in ``limiter.limit``."""
    return ConfigError(
        f"Only the limit (and the scope of a shared one) is given without a name, and {given!r} "
        "is more than that. Write limiter.limit('5/second', key_func=...): the rest by name."
    )


def leftovers(settings: Mapping[str, Any], extensions: Mapping[str, Any]) -> dict[str, str]:
    """Return the keys of Flask-Limiter that an application has without using it.

    They are not read, so a forgotten RATELIMIT_DEFAULT would silently mean no limit.

    :param extensions: the application's, where Flask-Limiter stands while it is in use.
    :returns: what to do instead, by key.
    """
    if "limiter" in extensions:
        return {}
    left = {f"RATELIMIT_{key}": instead for key, instead in KEYS.items()}
    return {key: instead for key, instead in left.items() if key in settings}


def warn_of_leftovers(settings: Mapping[str, Any], extensions: Mapping[str, Any]) -> None:
    """Log which keys of Flask-Limiter an application still has; see :func:`leftovers`."""
    found = leftovers(settings, extensions)
    if found:
        logger.warning(
            "The configuration has keys of Flask-Limiter, which are not read. Here, %s.",
            "; ".join(f"for {key}, {instead}" for key, instead in found.items()),
        )
