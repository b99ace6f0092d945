"""Attempts: calls of a store that may be out of reach, and which of its servers has an outage."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from ..decisions import Charge
from ..errors import BucketUnreadable, Connecting, StoreUnavailable
from .breaker import Breaker, Health

#: The breakers of the servers that answer one call: one, but for several nodes of a cluster.
Breakers = frozenset[Breaker]

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
        self.interval = interval
        self._on_outage = on_outage
        self._on_recovery = on_recovery
        self._clock = clock
        self._quiet_until = float("-inf")
        self._breakers: dict[Hashable, Breaker] = {}
        self._of_one_server: Breakers = frozenset({self._breaker_of(None)})

    def breakers(self, charges: Sequence[Charge] = ()) -> Breakers:
        """Return the breakers of the servers that decide about some charges."""
        if self.node_of is None or not charges:
            return self._of_one_server
        return frozenset({self._breaker_of(self.node_of(charge.key)) for charge in charges})

    def seconds_to_next_try(self, breakers: Breakers) -> float:
        """Return the seconds until all of the servers may be tried; 0.0 if they may be now."""
        return max(breaker.seconds_to_next_try() for breaker in breakers)

    def health(self) -> Health:
        """Return the health of the store, without a call; of several servers, the worst."""
        ranks = ("ok", "connecting", "recovering", "degraded")
        found = [breaker.health() for breaker in tuple(self._breakers.values())]
        return max(found, key=lambda health: ranks.index(health.state))

    def make(
        self, breakers: Breakers, call: Callable[[], Result], wrote: Callable[[Result], bool]
    ) -> Result | None:
        """Return what the store answers, or None if it fails or is not to be tried now.

        If the call fails, only the server at fault has an outage, where the error names it.

        :param wrote: whether a result shows that the store can be written to.
        """
        tickets = self._enter(breakers)
        if tickets is None:
            return None
        try:
            result = call()
        except StoreUnavailable as error:
            at_fault = self._at_fault(error)
            for breaker, ticket in tickets:
                if at_fault in (None, breaker):
                    self._failed(breaker, ticket, error)
            return None
        for breaker, ticket in tickets:
            if breaker.doubts:
                self._end(breaker.succeeded(ticket, wrote=wrote(result)))
        return result

    def _enter(self, breakers: Breakers) -> list[tuple[Breaker, int]] | None:
        """Return a ticket of each breaker, or None if a server is not to be tried now."""
        if len(breakers) > 1 and self.seconds_to_next_try(breakers) > 0:
            return None  # before any of them is entered, since that uses up its next try
        tickets = []
        for breaker in breakers:
            ticket = breaker.enter()
            if ticket is None:
                return None
            tickets.append((breaker, ticket))
        return tickets

    def _breaker_of(self, node: Hashable) -> Breaker:
        found = self._breakers.get(node)
        if found is None:
            made = Breaker(self.interval, self._clock)
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
