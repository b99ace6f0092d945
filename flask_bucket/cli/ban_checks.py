"""The checks of ``flask bucket doctor`` that look at bans: codes FB601 and FB602."""

from __future__ import annotations

from collections.abc import Iterator

from ..enforcing import Enforcer
from ..functions import is_same
from .findings import Finding
from .states import name_of, routes


def ban_checks(state: Enforcer) -> Iterator[Finding]:
    """Check for bans that count nothing, and for leases that bans make useless."""
    plans = [state.planner.plan(route.endpoint, route.method) for route in routes(state.app)]
    bounds = [bound for plan in plans for bound in plan.bounds]
    bounds += state.planner.unmatched()
    bans = [bound.ban for bound in state.planner.bans if bound.ban is not None]
    for ban in bans:
        if not any(is_same(ban.key_func, bound.key_func) for bound in bounds):
            key = name_of(ban.key_func)
            yield Finding(
                "FB601",
                "warning",
                f"The ban '{ban.ban}' counts nothing: no limit has its key function ({key}).",
                "Give the ban the key_func of the limits whose refusals it should count.",
            )
    if any(bound.lease and (bans or bound.ban is not None) for bound in bounds):
        yield Finding(
            "FB602",
            "warning",
            "Leases save no calls where there are bans: each request asks whether its client is "
            "banned.",
            "Remove the leases or the bans, or give the leased limits a Limiter of their own.",
        )
