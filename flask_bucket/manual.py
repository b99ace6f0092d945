"""Manual: what a Limiter does by hand, in a view, a task or a command."""

from __future__ import annotations

from flask import has_app_context, has_request_context, request

from .decisions import Decision
from .limits import Limit
from .rules import checked_cost
from .state import AppState, state_of
from .stores.outage import Health, health_of


class Manual:
    """The part of a Limiter that is called, not decorated with.

    :param name: the Limiter's.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._enabled: bool | None = None
        #: Under which a request keeps its exchange.
        self._slot = f"_flask_bucket_{name}"

    def consume(
        self, limit: Limit | str, key: str, cost: int = 1, scope: str = "manual"
    ) -> Decision:
        """Charge a bucket that belongs to no view, and return what was decided.

        Works wherever there is an application context: in a view, a task, a command.

        :param limit: a Limit, or a text for one.
        :param key: the client.
        :param cost: tokens; 0 looks without taking.
        :param scope: sets buckets of the same client apart.
        :raises ConfigError: for a limit, a key or a cost that is none.
        """
        state = state_of(self.name)
        charge = state.charge(limit, key, cost, scope)
        if not self._is_on(state):
            return Decision(True)
        if state.config.dry_run:
            return state.store.take((), (), [charge])
        return state.store.take([charge])

    def peek(self, limit: Limit | str, key: str, cost: int = 1, scope: str = "manual") -> Decision:
        """Return what :meth:`consume` would answer, taking nothing."""
        state = state_of(self.name)
        charge = state.charge(limit, key, cost, scope)
        if not self._is_on(state):
            return Decision(True)
        return state.peek(charge)

    def reset(self, client: str) -> int:
        """Forget all buckets of a client, so that they are full; return how many there were.

        :param client: as the key function returns it, such as ``"2001:db8::/64"``.
        :raises StoreUnavailable: if the store cannot be reached.
        """
        state = state_of(self.name)
        return state.store.reset(state.spelling.client(state.client(client)))

    def health(self) -> Health:
        """Return how the store does, for a health endpoint: no call is made for it.

        Its ``state`` is ``"ok"``, ``"degraded"`` (BUCKET_ON_ERROR decides) or ``"recovering"``.
        A degraded limiter is no reason to restart the application: it goes on by itself.
        """
        return health_of(state_of(self.name).store)

    def settle(self, cost: int) -> None:
        """Say what the current request really cost, once that is known.

        The limits that its view was charged are corrected by the difference, in one call after
        the response; a debt is possible. If some of them were written with a `cost`, only these:
        the others count requests. While a response is streamed, this works as well.

        :param cost: tokens, in place of the cost that was charged.
        :raises ConfigError: for a cost that is none.
        """
        real = checked_cost(cost)
        _, exchange = request.__dict__.get(self._slot, (None, None))
        if exchange is not None:
            exchange.real_cost = real

    @property
    def current(self) -> Decision | None:
        """What was decided about the current request; None if no limit applied."""
        if not has_request_context():
            return None
        _, exchange = request.__dict__.get(self._slot, (None, None))
        return exchange.decision if exchange is not None else None

    @property
    def enabled(self) -> bool:
        """Whether limits hold: as ``BUCKET_ENABLED`` says, until this is assigned to."""
        if self._enabled is None and has_app_context():
            return state_of(self.name).config.enabled
        return self._enabled is not False

    @enabled.setter
    def enabled(self, value: bool) -> None:
        self._enabled = bool(value)

    def _is_on(self, state: AppState) -> bool:
        return state.config.enabled if self._enabled is None else self._enabled
