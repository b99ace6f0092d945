"""The checks of ``flask bucket doctor`` that look at leases: codes FB401 to FB403."""

from __future__ import annotations

from collections.abc import Iterator

from ..at_once import AtOnce
from ..bound import BoundRule
from ..enforcing import Enforcer
from ..limits import Limit
from ..stores.lease import FEWEST, HOT, PART
from .findings import Finding
from .states import routes


def lease_checks(state: Enforcer) -> Iterator[Finding]:
    """Check for leases that do nothing, or last too long."""
    leased: dict[Limit, BoundRule] = {}
    for route in routes(state.app):
        for bound in state.planner.plan(route.endpoint, route.method).bounds:
            if bound.lease:
                limits = [limit for limit, *_ in bound.fixed or ()]
                leased |= {limit: bound for limit in limits if not isinstance(limit, AtOnce)}
    if (leased or state.config.lease) and not state.config.known_workers:
        yield Finding(
            "FB401",
            "warning",
            "The number of workers is not known here. Where it is not known, nothing is leased.",
            "Set BUCKET_WORKERS to the number of workers on all machines. If WEB_CONCURRENCY says "
            "it where the application is served, set it for this command too.",
        )
        return
    for limit, bound in leased.items():
        yield from _of_lease(limit, bound)


def _of_lease(limit: Limit, bound: BoundRule) -> Iterator[Finding]:
    seconds, workers = bound.lease, bound.workers or 1
    if not bound.lease_of(limit):
        yield Finding(
            "FB402",
            "note",
            f"{limit} is too small for a lease of {seconds:g} s with {workers} workers, so it is "
            "never leased.",
            f"The limit must refill at least {FEWEST} tokens during a lease, and have a burst of "
            f"at least {PART * HOT * workers}.",
        )
    elif limit.seconds_to_full < seconds:
        yield Finding(
            "FB403",
            "warning",
            f"A lease of {seconds:g} s is longer than {limit} takes to fill.",
            "Use a shorter lease: while a worker holds tokens, no other worker can spend them.",
        )
