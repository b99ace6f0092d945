"""The header styles. Each has its own serialiser: one of them is a draft that still moves."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil

from .decisions import Charge, Decision, Outcome
from .keys import KeyParts
from .limits import SECOND, Limit, distinct_names

#: Names and values.
Headers = Sequence[tuple[str, str]]

#: Of a structured field's integer (RFC 9651, section 3.3.1).
LARGEST = 999_999_999_999_999


#: The customary names.
NAMES: Mapping[str, str] = {
    "limit": "X-RateLimit-Limit",
    "remaining": "X-RateLimit-Remaining",
    "reset": "X-RateLimit-Reset",
}

#: What BUCKET_HEADERS may name. Retry-After itself is written in any case.
NAMED = (*NAMES, "retry_after")

HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def policy_names(decision: Decision, policies: Mapping[str, str]) -> dict[str, str]:
    """Return the names under which clients hear of limits, by their keys.

    They are the same in each response about the same limits, whatever was decided.

    :param policies: the names that a plan has given out, by the rest of the keys.
    """
    names: dict[str, str] = {}
    taken = set(policies.values())
    for outcome in decision.outcomes:
        if outcome.shadow or outcome.kind == "ban" or outcome.key in names:
            continue
        parts = KeyParts.of(outcome.key)
        name = None if parts is None else policies.get(parts.ending)
        if name is None:  # of a block within the view, or of what a function returned
            name = distinct_names([outcome.limit], taken)[0].name
        names[outcome.key] = name
    return names


def x_ratelimit(
    decision: Decision,
    outcome: Outcome,
    policies: Mapping[str, str],
    names: Mapping[str, str] = NAMES,
) -> Headers:
    """The customary headers: capacity, tokens remaining, Unix time at which the bucket is full.

    :param names: may be others; under "retry_after", the seconds to wait after a refusal.
    """
    headers = [
        (names["limit"], str(outcome.limit.capacity)),
        (names["remaining"], str(outcome.remaining)),
        (names["reset"], str(ceil(decision.now / SECOND + outcome.reset_after))),
    ]
    after = names.get("retry_after")
    if after is not None and outcome.retry_after is not None and not outcome.allowed:
        headers.append((after, str(whole_seconds(outcome.retry_after))))
    return headers


def ietf_11(decision: Decision, outcome: Outcome, policies: Mapping[str, str]) -> Headers:
    """RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-11.

    Lists every enforced limit, the binding one first. A policy's quota ``q`` is the capacity, its
    window ``w`` the seconds in which an empty bucket fills. Of the state, ``r`` is what remains
    and ``t`` the seconds to wait: until the refused cost can be afforded, else until what
    remains has been refilled once. A limit on requests at once has a quota in the draft's own
    unit for them, and no window.
    """
    names = policy_names(decision, policies)
    told = {o.key: o for o in (outcome, *decision.outcomes) if o.key in names}
    told[outcome.key] = outcome  # the first, whatever was charged later
    listed = [(f'"{names[key]}"', each) for key, each in told.items()]
    policies_told = [name + _policy_11(each) for name, each in listed]
    states = [name + _state_11(each) for name, each in listed]
    return (("RateLimit-Policy", ", ".join(policies_told)), ("RateLimit", ", ".join(states)))


def _policy_11(outcome: Outcome) -> str:
    limit = outcome.limit
    policy = f";q={min(limit.capacity, LARGEST)}"
    if outcome.kind == "slot":
        return policy + ';qu="concurrent-requests"'
    return policy + f";w={min(_refilling(limit, limit.capacity), LARGEST)}"


def _state_11(outcome: Outcome) -> str:
    state = f";r={min(outcome.remaining, LARGEST)}"
    if outcome.allowed and outcome.kind == "slot":
        return state  # nobody knows when a slot is given back
    if outcome.allowed:
        return state + f";t={min(_refilling(outcome.limit, outcome.remaining), LARGEST)}"
    if outcome.retry_after is None:
        return state
    return state + f";t={min(whole_seconds(outcome.retry_after), LARGEST)}"


Style = Callable[[Decision, Outcome, Mapping[str, str]], Headers]

#: The styles by the names that BUCKET_HEADERS knows. The draft changes its wire format between
#: numbers, so each number is a style, and "ietf" is the newest.
STYLES: Mapping[str, Style] = {
    "x-ratelimit": x_ratelimit,
    "ietf-11": ietf_11,
    "ietf": ietf_11,
}


def styles(chosen: Sequence[str] | Mapping[str, str]) -> tuple[Style, ...]:
    """Return the styles that BUCKET_HEADERS asks for: by their names, or with other names."""
    if isinstance(chosen, Mapping):
        return (partial(x_ratelimit, names={**NAMES, **chosen}),)
    return tuple(STYLES[name] for name in chosen)


def examples(chosen: Sequence[str] | Mapping[str, str], *, refused: bool) -> Headers:
    """Return the headers of a response that was limited, each once, with values that may be."""
    outcome = Outcome.of(Charge(Limit(1, 1), ""), False, 0, SECOND if refused else 0, SECOND)
    decision = Decision.of((outcome,), 0)
    written = {"Retry-After": "1"} if refused else {}
    for style in styles(chosen):
        written |= style(decision, outcome, {})
    return tuple(written.items())


def _refilling(limit: Limit, tokens: int) -> int:
    """Return the whole seconds in which tokens are refilled: rounded up, and exact before that."""
    return max(1, -(-tokens * limit.scale * limit.tick // (limit.step * SECOND)))


def whole_seconds(wait: float) -> int:
    """Return a wait as Retry-After spells it (RFC 9110, section 10.2.3): never too early."""
    return max(1, ceil(wait))
