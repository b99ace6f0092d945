"""Each of several servers has outages of its own."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from flask_bucket.decisions import Charge, Decision
from flask_bucket.errors import StoreUnavailable
from flask_bucket.stores.breaker import Health
from flask_bucket.stores.outage import OutageStore
from tests.outage.policies.conftest import CHARGE, LIMIT, Clock, Fickle


class Nodes(Fickle):
    """A store of several servers, one for each client."""

    def __init__(self) -> None:
        super().__init__()
        self.dead: set[str] = set()

    def node_of(self, charges: Sequence[Charge]) -> Hashable:
        return charges[0].key

    def take(self, charges: Sequence[Charge], *arguments: Any, **more: Any) -> Decision:
        self.error = self._error(charges)
        return super().take(charges, *arguments, **more)

    def peek(self, charges: Sequence[Charge], now: int | None = None) -> Decision:
        self.error = self._error(charges)
        return super().peek(charges, now)

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        self.error = self._error(charges)
        super().settle(charges, now)

    def _error(self, charges: Sequence[Charge]) -> StoreUnavailable | None:
        return StoreUnavailable("dead") if charges[0].key in self.dead else None


def test_each_of_several_servers_has_outages_of_its_own(clock: Clock) -> None:
    nodes = Nodes()
    store = OutageStore(nodes, recovery_interval=1, clock=clock)
    other = Charge(LIMIT, "bucket:{other}:page:per-day")
    nodes.dead = {CHARGE.key}
    for _ in range(3):
        assert store.take([CHARGE]).degraded
        assert not store.take([other]).degraded
    assert nodes.asked == 4
    assert store.health().state == "degraded"
    nodes.dead = set()
    clock.now += 1
    assert not store.take([CHARGE]).degraded
    assert store.health() == Health()


def test_a_look_and_a_settlement_concern_the_server_of_their_key(clock: Clock) -> None:
    nodes = Nodes()
    store = OutageStore(nodes, recovery_interval=1, clock=clock)
    other = Charge(LIMIT, "bucket:{other}:page:per-day")
    nodes.dead = {CHARGE.key}
    store.settle([CHARGE])
    for _ in range(3):
        store.settle([CHARGE])
        assert store.peek([CHARGE]).degraded
        assert store.take([CHARGE]).degraded
        assert not store.peek([other]).degraded
    assert nodes.asked == 1 + 3
