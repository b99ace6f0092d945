"""The header styles. Each has its own serialiser, because the draft may still change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil

from .decisions import Charge, Decision, Kind, Outcome
from .keys import KeyParts
from .limits import SECOND, Limit, distinct_name

#: Names and values.
Headers = Sequence[tuple[str, str]]

#: The largest integer in a structured field (RFC 9651, section 3.3.1).
LARGEST = 999_999_999_999_999


#: The customary names.
NAMES: Mapping[str, str] = {
    "limit": "X-RateLimit-Limit",
    "remaining": "X-RateLimit-Remaining",
    "reset": "X-RateLimit-Reset",
}

#: The names that BUCKET_HEADERS may set. Retry-After itself is always written.
NAMED = (*NAMES, "retry_after")

HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True)
class Policy:
    """A limit that a request was charged, as its client is told."""

    name: str
    limit: Limit
    kind: Kind


#: Policies by their buckets' keys, in the order in which they were charged.
Policies = Mapping[str, Policy]


def policies_charged(
    charges: Iterable[Charge], names: Mapping[str, str], taken: set[str]
) -> dict[str, Policy]:
    """Return the policies of charges.

    :param names: the names that a plan has given out, by the rest of the keys.
    :param taken: the names in use already; those given out are added.
    """
    policies: dict[str, Policy] = {}
    for charge in charges:
        if charge.kind == "ban":
            continue
        parts = KeyParts.of(charge.key)
        name = None if parts is None else names.get(parts.ending)
        if name is None:  # of a block within the view, or returned by a function
            name = distinct_name(charge.limit.name, taken)
        policies[charge.key] = Policy(name, charge.limit, charge.kind)
    return policies


def x_ratelimit(
    decision: Decision,
    outcome: Outcome,
    policies: Callable[[], Policies],
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


def ietf_11(decision: Decision, outcome: Outcome, policies: Callable[[], Policies]) -> Headers:
    """RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-11.

    Lists every policy that the request was charged, the binding one first. A policy's quota ``q``
    is the capacity, its window ``w`` the seconds in which an empty bucket fills. In the state,
    ``r`` is the tokens remaining and ``t`` the seconds to wait: after a refusal, until the cost can
    be afforded; else the time in which ``r`` tokens are refilled. The state is left out if the
    decision does not tell it. A limit on requests at once has a quota in the draft's own unit for
    them, and no window.
    """
    listed = policies()
    listed = {outcome.key: listed[outcome.key], **listed}
    known = {each.key: each for each in (*decision.outcomes, outcome)}
    policies_told = [_policy_11(policy) for policy in listed.values()]
    states = [
        f'"{policy.name}"{_state_11(known[key])}' for key, policy in listed.items() if key in known
    ]
    return (("RateLimit-Policy", ", ".join(policies_told)), ("RateLimit", ", ".join(states)))


def _policy_11(policy: Policy) -> str:
    limit = policy.limit
    told = f'"{policy.name}";q={min(limit.capacity, LARGEST)}'
    if policy.kind == "slot":
        return told + ';qu="concurrent-requests"'
    return told + f";w={min(_refilling(limit, limit.capacity), LARGEST)}"


def _state_11(outcome: Outcome) -> str:
    state = f";r={min(outcome.remaining, LARGEST)}"
    if outcome.allowed and outcome.kind == "slot":
        return state  # nobody knows when a slot is given back
    if outcome.allowed:
        return state + f";t={min(_refilling(outcome.limit, outcome.remaining), LARGEST)}"
    if outcome.retry_after is None:
        return state
    return state + f";t={min(whole_seconds(outcome.retry_after), LARGEST)}"


Style = Callable[[Decision, Outcome, Callable[[], Policies]], Headers]

#: The styles by the names that BUCKET_HEADERS knows. The draft changes its wire format between
#: numbers, so each number is a style, and "ietf" is the newest.
STYLES: Mapping[str, Style] = {
    "x-ratelimit": x_ratelimit,
    "ietf-11": ietf_11,
    "ietf": ietf_11,
}

#: The styles that list policies.
LISTING: Sequence[Style] = (ietf_11,)


def styles(chosen: Sequence[str] | Mapping[str, str]) -> tuple[Style, ...]:
    """Return the styles that BUCKET_HEADERS sets, by style or with other header names."""
    if isinstance(chosen, Mapping):
        return (partial(x_ratelimit, names={**NAMES, **chosen}),)
    return tuple(STYLES[name] for name in chosen)


def examples(chosen: Sequence[str] | Mapping[str, str], *, refused: bool) -> Headers:
    """Return the headers of a limited response, each once, with example values."""
    charge = Charge(Limit(1, 1), "")
    outcome = Outcome.of(charge, False, 0, SECOND if refused else 0, SECOND)
    decision = Decision.of((outcome,), 0)
    written = {"Retry-After": "1"} if refused else {}
    for style in styles(chosen):
        written |= style(decision, outcome, lambda: policies_charged([charge], {}, set()))
    return tuple(written.items())


def _refilling(limit: Limit, tokens: int) -> int:
    """Return the whole seconds in which tokens are refilled: rounded up, and exact before that."""
    return max(1, -(-tokens * limit.scale * limit.tick // (limit.step * SECOND)))


def whole_seconds(wait: float) -> int:
    """Return a wait as Retry-After spells it (RFC 9110, section 10.2.3): never too early."""
    return max(1, ceil(wait))
