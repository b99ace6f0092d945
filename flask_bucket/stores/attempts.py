"""Attempts: calls of a store that may be out of reach, and which of its servers has an outage."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from ..decisions import Charge
from ..errors import BucketUnreadable, Connecting, StoreUnavailable
from .breaker import Breaker, Health, Joint

#: The result of a call.
Result = TypeVar("Result")

logger = logging.getLogger("flask_bucket")

#: Seconds between two log lines about buckets that cannot be read.
QUIET = 1.0


class Attempts:
    """Makes calls of a store while its breaker allows it, and reports each outage.

    :param node_of: names the server that serves a key, each of which has outages of its own; None
        for a store of one server.
    :param policy: decides during an outage. The log names it.
    :param interval: seconds between tries during an outage.
    :param on_outage: called with the reason when an outage begins.
    :param on_recovery: called when it ends.
    """

    def __init__(
        self,
        node_of: Callable[[str], Hashable] | None,
        policy: str,
        interval: float,
        on_outage: Callable[[str], object],
        on_recovery: Callable[[], object],
        clock: Callable[[], float],
    ) -> None:
        self.node_of = node_of
        self._policy = policy
        self._interval = interval
        self._on_outage = on_outage
        self._on_recovery = on_recovery
        self._clock = clock
        self._quiet_until = float("-inf")
        self._breakers: dict[Hashable, Breaker] = {None: Breaker(interval, clock)}

    def breaker(self, charges: Sequence[Charge] = ()) -> Breaker | Joint:
        """Return the breaker of the servers that decide about some charges."""
        if self.node_of is None:
            return self._breaker_of(None)
        nodes = {self.node_of(charge.key) for charge in charges}
        if len(nodes) > 1:
            return Joint(frozenset(map(self._breaker_of, nodes)))
        return self._breaker_of(nodes.pop() if nodes else None)

    def health(self) -> Health:
        """Return the health of the store, without a call; of several servers, the worst."""
        ranks = ("ok", "connecting", "recovering", "degraded")
        found = [breaker.health() for breaker in tuple(self._breakers.values())]
        return max(found, key=lambda health: ranks.index(health.state))

    def make(
        self,
        breaker: Breaker | Joint,
        call: Callable[[], Result],
        wrote: Callable[[Result], bool],
    ) -> Result | None:
        """Return what the store answers, or None if it fails or is not to be tried now.

        :param wrote: whether a result shows that the store can be written to.
        """
        if isinstance(breaker, Joint):
            return self._make_jointly(breaker, call, wrote)
        ticket = breaker.enter()
        if ticket is None:
            return None
        try:
            result = call()
        except StoreUnavailable as error:
            self._failed(breaker, ticket, error)
            return None
        if breaker.doubts:
            self._end(breaker.succeeded(ticket, wrote=wrote(result)))
        return result

    def _make_jointly(
        self, joint: Joint, call: Callable[[], Result], wrote: Callable[[Result], bool]
    ) -> Result | None:
        """Make a call that several servers answer. Only the server that fails has an outage."""
        tickets = joint.enter()
        if tickets is None:
            return None
        try:
            result = call()
        except StoreUnavailable as error:
            at_fault = self._at_fault(error)
            for breaker, ticket in tickets.items():
                if at_fault in (None, breaker):
                    self._failed(breaker, ticket, error)
            return None
        for breaker, ticket in tickets.items():
            self._end(breaker.succeeded(ticket, wrote=wrote(result)))
        return result

    def _breaker_of(self, node: Hashable) -> Breaker:
        found = self._breakers.get(node)
        if found is None:
            made = Breaker(self._interval, self._clock)
            found = self._breakers.setdefault(node, made)
        return found

    def _at_fault(self, error: StoreUnavailable) -> Breaker | None:
        """Return the breaker of the server that failed, if the error tells it."""
        if self.node_of is None or error.key is None:
            return None
        return self._breaker_of(self.node_of(error.key))

    def _failed(self, breaker: Breaker, ticket: int, error: StoreUnavailable) -> None:
        """Note that a call failed, or that only one bucket could not be read."""
        if isinstance(error, BucketUnreadable):
            self._log_unreadable(error)
            self._end(breaker.succeeded(ticket, wrote=False))
        elif isinstance(error, Connecting):
            self._begin(breaker.connecting(ticket, str(error), in_vain=error.in_vain), error)
        else:
            self._begin(breaker.failed(ticket, str(error)), error)

    def _begin(self, began: bool, error: StoreUnavailable) -> None:
        if began:
            logger.error(
                "The store is out of reach; until it answers, BUCKET_ON_ERROR=%r decides: %s",
                self._policy,
                error,
            )
            self._on_outage(str(error))

    def _end(self, ended: bool) -> None:
        if ended:
            logger.warning("The store answers again, and the limits hold.")
            self._on_recovery()

    def _log_unreadable(self, error: BucketUnreadable) -> None:
        """Log that one bucket cannot be read, at most once in a while."""
        now = self._clock()
        if now >= self._quiet_until:
            self._quiet_until = now + QUIET
            logger.error("A bucket cannot be read, and the outage policy decided: %s", error)
