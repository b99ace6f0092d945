"""The view that tells a client what it has left."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from math import ceil
from typing import Any
from urllib.parse import unquote

from flask import Response, jsonify

from .applications import current_enforcer
from .bills import Item
from .bound import BoundRule, Facts
from .current import current_request
from .decisions import Decision, Outcome
from .enforcing import Enforcer
from .exchange import exchanges_of
from .keys import SCOPE_MARK
from .limits import SECOND, Limit

logger = logging.getLogger("flask_bucket")


def status_view_of(name: str) -> Callable[[], Response]:
    """Return the view for a Limiter with this name."""

    def status_view() -> Response:
        """Tell the client its buckets, as JSON. Takes no tokens, and makes one call."""
        enforcer = current_enforcer(name)
        exchange = exchanges_of(current_request()).by_limiter.get(name)
        is_free = not enforcer.is_on or (exchange is not None and exchange.filtered)
        items = [] if is_free else _items(enforcer)
        decision = Decision(True)
        if items:
            decision = enforcer.store.peek([charge for charge, _ in items])
        told = zip(decision.outcomes, items, strict=False)  # no outcomes if a policy decided
        shown = [(outcome, bound) for outcome, (_, bound) in told if _is_told(outcome, bound)]
        buckets = [_bucket(outcome, bound) for outcome, bound in shown if outcome.kind != "ban"]
        bans = [_ban(*each, decision.now) for each in shown if each[0].kind == "ban"]
        response = jsonify(buckets=buckets, bans=bans, degraded=decision.degraded)
        response.headers["Cache-Control"] = "no-store"
        return response

    return status_view


class _Asked(Facts):
    """Facts for the status view: nothing is charged, and a rule's limits are computed once."""

    def __init__(self) -> None:
        super().__init__()
        self._limits: dict[int, tuple[Limit, ...]] = {}

    def cost(self, bound: BoundRule) -> int:
        return 0

    def limits(self, bound: BoundRule) -> tuple[Limit, ...]:
        known = self._limits.get(id(bound.rule))
        if known is None:
            known = self._limits[id(bound.rule)] = super().limits(bound)
        return known


def _items(enforcer: Enforcer) -> list[Item]:
    """Return a charge of nothing for each bucket of the client.

    A rule's function may need something that only requests of its own view have, such as a part of
    the path. Then its bucket is not known, and is left out.
    """
    facts = _Asked()
    found: dict[str, Item] = {}
    for bound in _bounds(enforcer):
        try:
            client = facts.client(bound)
            if client is not None:
                start = enforcer.spelling.start(client)
                for charge in bound.charges(start, facts):
                    found[charge.key] = (replace(charge, cost=0), bound)
        except Exception as error:
            logger.debug("The status leaves out %r: %r", bound.rule, error)
    return [*found.values(), *_bans_of(enforcer, facts)]


def _bans_of(enforcer: Enforcer, facts: Facts) -> Iterator[Item]:
    """Yield a look at each ban that may concern the client."""
    for bound in (*enforcer.planner.bans, *_bounds(enforcer)):
        if bound.ban is None or bound.shadow:
            continue
        try:
            client = facts.client_by(bound.ban.key_func)
        except Exception as error:
            logger.debug("The status leaves out %r: %r", bound.ban.ban, error)
            continue
        if client is not None:
            yield bound.ban.charge(enforcer.spelling.start(client)), bound


def _bounds(enforcer: Enforcer) -> Iterator[BoundRule]:
    """Yield the rules that may refuse a request of the application, each once at each place."""
    seen = set()
    urls = enforcer.app.url_map.iter_rules()
    served = [(url.endpoint, method) for url in urls for method in sorted(url.methods or ())]
    plans = [enforcer.planner.plan(endpoint, method).bounds for endpoint, method in served]
    for bound in chain(enforcer.planner.unmatched(), *plans):
        place = id(bound.rule), bound.scope
        if not bound.shadow and place not in seen:
            seen.add(place)
            yield bound


def _is_told(outcome: Outcome, bound: BoundRule) -> bool:
    """Return whether a client may hear about a bucket.

    Full buckets of endpoints are left out: they would tell every client the names of all endpoints.
    Bans are told only once they have begun.
    """
    if outcome.kind == "ban":
        return not outcome.allowed
    return outcome.reset_after > 0 or bound.source == "application"


def _ban(outcome: Outcome, bound: BoundRule, now: int) -> dict[str, Any]:
    """Tell a client of a ban: of the whole application, or of one scope, and until when."""
    wait = outcome.retry_after or 0
    return {
        "scope": _place(bound)[0],
        "retry_after": wait,
        "banned_until": ceil(now / SECOND + wait),
    }


def _bucket(outcome: Outcome, bound: BoundRule) -> dict[str, Any]:
    limit = outcome.limit
    scope, method = _place(bound)
    return {
        "name": limit.name,
        "scope": scope,
        "source": bound.source,
        "method": method,
        "limit": str(limit),
        "capacity": limit.capacity,
        "remaining": outcome.remaining,
        "reset_after": outcome.reset_after,
    }


def _place(bound: BoundRule) -> tuple[str | None, str | None]:
    """Return the scope of a limit as its author wrote it, and the method if it has one.

    The endpoint or the scope comes first in a key. This package makes the marks after it. Of these,
    only the method of a limit per method means something to a client.
    """
    first, *marks = bound.scope.split(SCOPE_MARK)
    method = next((mark for mark in marks if mark.isupper()), None)
    return unquote(first) or None, method
