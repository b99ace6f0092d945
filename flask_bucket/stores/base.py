"""The protocol of all stores, and the base of those that wrap a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from ..decisions import Charge, Decision
from ..errors import ConfigError
from ..limits import EXACT


@runtime_checkable
class Store(Protocol):
    """Keeps the buckets and decides, atomically, any number of them in one call."""

    def take(
        self,
        charges: Sequence[Charge],
        held: Sequence[Charge] = (),
        shadow: Sequence[Charge] = (),
        now: int | None = None,
    ) -> Decision:
        """Charge all buckets, or none.

        :param charges: what must be affordable, each and all of it.
        :param held: what was taken earlier for the same request: given back if this is refused.
        :param shadow: taken if affordable, reported if not; refuses nothing.
        :param now: microseconds; by default the store's own clock.
        :raises ConfigError: for a negative cost.
        :raises StoreUnavailable: if the store cannot decide.
        """

    def peek(self, charges: Sequence[Charge], now: int | None = None) -> Decision:
        """Return what `take` would answer, taking nothing."""

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        """Apply costs after the fact, without asking: a bucket may be left in debt.

        A negative cost gives back, never above the capacity.
        """

    def reset(self, client: str | None = None, key_prefix: str | None = None) -> int:
        """Forget buckets, so that they are full; return how many there were.

        :param client: whose, spelled as in its keys; by default everybody's.
        :param key_prefix: what the keys begin with; by default the store's own, if it has one.
        :raises StoreUnavailable: if the store cannot be reached.
        """

    def close(self) -> None:
        """Let go of connections; the store may be used again, and opens new ones then."""


class WrappingStore:
    """Base of the stores that wrap a store: it leaves every call to that one.

    A subclass overrides the calls that it changes.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def take(
        self,
        charges: Sequence[Charge],
        held: Sequence[Charge] = (),
        shadow: Sequence[Charge] = (),
        now: int | None = None,
    ) -> Decision:
        return self.store.take(charges, held, shadow, now)

    def peek(self, charges: Sequence[Charge], now: int | None = None) -> Decision:
        return self.store.peek(charges, now)

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        self.store.settle(charges, now)

    def reset(self, client: str | None = None, key_prefix: str | None = None) -> int:
        return self.store.reset(client, key_prefix)

    def close(self) -> None:
        self.store.close()


def layers(store: Store) -> Iterator[Store]:
    """Yield a store and the stores that it wraps, from the outermost in."""
    yield store
    while isinstance(store, WrappingStore):
        store = store.store
        yield store


def innermost(store: Store) -> Store:
    """Return the store that keeps the buckets."""
    *_, kept = layers(store)
    return kept


def checked_now(now: int) -> int:
    """Return `now` if it is a time the arithmetic can count in.

    :raises ConfigError: unless it is an int of microseconds from 0 to below 2**53.
    """
    if type(now) is not int or not 0 <= now < EXACT:
        raise ConfigError(
            f"A time is a whole number of microseconds (an int from 0 to below 2**53), not {now!r}."
        )
    return now
