"""Breaker: during an outage, it says when the store is tried again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Literal

from .. import forks


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a store, as far as its last calls tell."""

    #: ``"ok"``; ``"connecting"``: the outage policy decides while a connection is made, and nothing
    #: has failed; ``"degraded"``: the outage policy decides; ``"recovering"``: the store answers
    #: again, but no write has succeeded yet.
    state: Literal["ok", "connecting", "degraded", "recovering"] = "ok"
    #: Unix time at which the outage began.
    since: float | None = None
    #: The error that began it, in the words of the client library.
    reason: str | None = None
    #: Seconds until the store is tried again; 0.0 unless degraded.
    next_try: float = 0.0


class Breaker:
    """Opens when the store fails; then one request tries the store in each interval.

    Thread-safe, and never locked during a call: requests that do not try do not wait.

    An answer lets all calls through again, but only a write ends the outage: a server that takes
    no writes (out of memory, or a replica) still answers requests that are refused, and would
    seem to recover with each of them.

    :param interval: seconds between tries.
    :param clock: seconds, monotonic.
    """

    def __init__(self, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.interval = interval
        self._clock = clock
        self.after_fork()
        forks.watch(self)
        self._next_try: float | None = None
        #: The Unix time and the reason of the outage.
        self._outage: tuple[float, str] | None = None
        #: Counts the changes, so that a call that began before a change cannot make another.
        self._changes = 0
        #: Whether the last call came before a connection was up.
        self.is_connecting = False

    def after_fork(self) -> None:
        """Make a new lock in a forked child."""
        self._lock = Lock()

    @property
    def is_open(self) -> bool:
        """Whether calls are held back, because the store seems out of reach."""
        return self._next_try is not None

    @property
    def doubts(self) -> bool:
        """Whether a successful call may change anything."""
        return self._outage is not None or self.is_connecting

    def seconds_to_next_try(self) -> float:
        """Return the seconds until the store is tried again; 0.0 while it is well."""
        next_try = self._next_try
        return 0.0 if next_try is None else max(0.0, next_try - self._clock())

    def health(self) -> Health:
        """Return the state that the last calls showed, without a call."""
        with self._lock:
            if self._outage is None:
                return Health("connecting" if self.is_connecting else "ok")
            unwell = self.is_open or self.is_connecting
            state: Literal["degraded", "recovering"] = "degraded" if unwell else "recovering"
            return Health(state, *self._outage, self.seconds_to_next_try())

    def enter(self) -> int | None:
        """Return a ticket for one call, or None if the store is not to be tried now."""
        if self._next_try is None:
            return self._changes
        with self._lock:
            now = self._clock()
            if self._next_try is not None:
                if now < self._next_try:
                    return None
                self._next_try = now + self.interval
            return self._changes

    def succeeded(self, ticket: int, *, wrote: bool = True) -> bool:
        """Note that a call was answered; return whether that ends an outage."""
        self.is_connecting = False
        if self._outage is None:
            return False
        with self._lock:
            if self._outage is None or ticket != self._changes:
                return False
            if self._next_try is not None:
                self._next_try, self._changes = None, self._changes + 1
            if not wrote:
                return False
            self._outage = None
            return True

    def connecting(self, ticket: int, reason: str, *, in_vain: bool) -> bool:
        """Note a call before a connection was up; return whether that begins an outage.

        Calls are not held back: they do not wait, and use the connection as soon as it is up.

        :param in_vain: whether a second call has waited for that connection.
        """
        with self._lock:
            if ticket != self._changes:
                return False
            self.is_connecting = True
            if not in_vain or self._outage is not None:
                return False
            self._outage = (time.time(), reason)
            return True

    def failed(self, ticket: int, reason: str) -> bool:
        """Note that a call failed; return whether that begins an outage."""
        self.is_connecting = False
        with self._lock:
            if ticket != self._changes:
                return False
            if self._next_try is None:
                self._changes += 1
            self._next_try = self._clock() + self.interval
            if self._outage is not None:
                return False
            self._outage = (time.time(), reason)
            return True
