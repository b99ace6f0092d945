"""The header styles. Each has its own serialiser: one of them is a draft that still moves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import ceil
from typing import Any

from .decisions import Decision, Outcome
from .limits import SECOND, Limit

#: Names and values.
Headers = tuple[tuple[str, str], ...]

#: Of a structured field's integer (RFC 9651, section 3.3.1).
LARGEST = 999_999_999_999_999


def x_ratelimit(decision: Decision, outcome: Outcome) -> Headers:
    """The customary headers: capacity, tokens remaining, Unix time at which the bucket is full."""
    return (
        ("X-RateLimit-Limit", str(outcome.limit.capacity)),
        ("X-RateLimit-Remaining", str(outcome.remaining)),
        ("X-RateLimit-Reset", str(ceil(decision.now / SECOND + outcome.reset_after))),
    )


def ietf_11(decision: Decision, outcome: Outcome) -> Headers:
    """RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-11.

    Lists every enforced limit, the binding one first. A policy's quota ``q`` is the capacity, its
    window ``w`` the seconds in which an empty bucket fills. Of the state, ``r`` is what remains
    and ``t`` the seconds to wait: until the refused cost can be afforded, else until what
    remains has been refilled once.
    """
    others = [o for o in decision.outcomes if not o.shadow and o is not outcome]
    policies, states = [], []
    names: dict[str, int] = {}
    for each in (outcome, *others):
        name = each.limit.name
        names[name] = names.get(name, 0) + 1
        # Limits of other scopes may have the same name, and a client must tell policies apart.
        quoted = f'"{name}"' if names[name] == 1 else f'"{name}-{names[name]}"'
        policies.append(quoted + _policy_11(each.limit))
        states.append(quoted + _state_11(each))
    return (("RateLimit-Policy", ", ".join(policies)), ("RateLimit", ", ".join(states)))


def _policy_11(limit: Limit) -> str:
    quota, window = min(limit.capacity, LARGEST), _refilling(limit, limit.capacity)
    return f";q={quota};w={min(window, LARGEST)}"


def _state_11(outcome: Outcome) -> str:
    state = f";r={min(outcome.remaining, LARGEST)}"
    if outcome.allowed:
        return state + f";t={min(_refilling(outcome.limit, outcome.remaining), LARGEST)}"
    if outcome.retry_after is None:
        return state
    return state + f";t={min(whole_seconds(outcome.retry_after), LARGEST)}"


def write(written: Iterable[tuple[str, str]], headers: Any) -> None:
    """Set headers of a response, in one go.

    Werkzeug looks through all headers for each that is set, and most of ours are not there yet.

    :param headers: Werkzeug's.
    """
    present = {name.lower(): value for name, value in headers}
    for name, value in written:
        before = present.get(name.lower())
        if before is None:
            headers.add(name, value)
        elif before != value:
            headers[name] = value


#: The styles by the names that BUCKET_HEADERS knows. The draft changes its wire format between
#: numbers, so each number is a style, and "ietf" is the newest.
STYLES: Mapping[str, Callable[[Decision, Outcome], Headers]] = {
    "x-ratelimit": x_ratelimit,
    "ietf-11": ietf_11,
    "ietf": ietf_11,
}


def _refilling(limit: Limit, tokens: int) -> int:
    """Return the whole seconds in which tokens are refilled: rounded up, and exact before that."""
    return max(1, -(-tokens * limit.scale * limit.tick // (limit.step * SECOND)))


def whole_seconds(wait: float) -> int:
    """Return a wait as Retry-After spells it (RFC 9110, section 10.2.3): never too early."""
    return max(1, ceil(wait))
