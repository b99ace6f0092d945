"""Each of several servers has outages of its own."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import pytest

from flask_bucket.decisions import Charge, Decision
from flask_bucket.errors import StoreUnavailable
from flask_bucket.stores.breaker import Health
from flask_bucket.stores.outage import OutageStore
from tests.outage.policies.conftest import CHARGE, LIMIT, Clock, Fickle

OTHER = Charge(LIMIT, "bucket:{other}:page:per-day")
THIRD = Charge(LIMIT, "bucket:{third}:page:per-day")


class Nodes(Fickle):
    """A store of several servers, one for each client."""

    def __init__(self) -> None:
        super().__init__()
        self.dead: set[str] = set()
        #: Whether its errors tell which server failed.
        self.names_keys = True

    def node_of(self, key: str) -> Hashable:
        return key

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
        for charge in charges:
            if charge.key in self.dead:
                error = StoreUnavailable("dead")
                error.key = charge.key if self.names_keys else None
                return error
        return None


def test_each_of_several_servers_has_outages_of_its_own(clock: Clock) -> None:
    nodes = Nodes()
    store = OutageStore(nodes, recovery_interval=1, clock=clock)
    nodes.dead = {CHARGE.key}
    for _ in range(3):
        assert store.take([CHARGE]).degraded
        assert not store.take([OTHER]).degraded
    assert nodes.asked == 4
    assert store.health().state == "degraded"
    nodes.dead = set()
    clock.now += 1
    assert not store.take([CHARGE]).degraded
    assert store.health() == Health()


def test_a_look_and_a_settlement_concern_the_server_of_their_key(clock: Clock) -> None:
    nodes = Nodes()
    store = OutageStore(nodes, recovery_interval=1, clock=clock)
    nodes.dead = {CHARGE.key}
    store.settle([CHARGE])
    for _ in range(3):
        store.settle([CHARGE])
        assert store.peek([CHARGE]).degraded
        assert store.take([CHARGE]).degraded
        assert not store.peek([OTHER]).degraded
    assert nodes.asked == 1 + 3


def test_an_outage_of_a_server_is_one_whichever_others_are_asked_beside_it(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = Nodes()
    told: list[str] = []
    store = OutageStore(
        nodes, clock=clock, on_outage=told.append, on_recovery=lambda: told.append("over")
    )
    nodes.dead = {CHARGE.key}
    for others in ([OTHER], [THIRD], [], [OTHER, THIRD]):
        assert store.take([*others, CHARGE]).degraded
    assert nodes.asked == 1
    assert not store.take([OTHER, THIRD]).degraded
    nodes.dead = set()
    clock.now += 1
    for others in ([OTHER, THIRD], [OTHER], []):
        assert not store.take([*others, CHARGE]).degraded
    assert told == ["dead", "over"]
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


def test_each_server_that_a_call_needs_is_tried_in_its_own_time(clock: Clock) -> None:
    nodes = Nodes()
    store = OutageStore(nodes, recovery_interval=1, clock=clock)
    nodes.dead = {CHARGE.key, OTHER.key}
    assert store.take([CHARGE]).degraded
    clock.now += 0.5
    assert store.take([OTHER]).degraded
    nodes.dead = set()
    clock.now += 0.5
    assert store.take([CHARGE, OTHER]).degraded  # one of them is not to be tried yet
    assert nodes.asked == 2
    assert not store.take([CHARGE]).degraded  # and that took no try from the other one
    clock.now += 0.5
    assert not store.take([CHARGE, OTHER]).degraded
    assert store.health() == Health()


def test_an_error_that_names_no_server_is_an_outage_of_all_that_were_asked(clock: Clock) -> None:
    nodes = Nodes()
    store = OutageStore(nodes, clock=clock)
    nodes.dead = {CHARGE.key}
    nodes.names_keys = False
    assert store.take([CHARGE, OTHER]).degraded
    assert store.take([CHARGE]).degraded
    assert store.take([OTHER]).degraded
    assert nodes.asked == 1


def test_a_look_at_several_servers_ends_no_outage(clock: Clock) -> None:
    nodes = Nodes()
    store = OutageStore(nodes, recovery_interval=1, clock=clock)
    nodes.dead = {CHARGE.key}
    assert store.take([CHARGE, OTHER]).degraded
    nodes.dead = set()
    clock.now += 1
    assert not store.peek([CHARGE, OTHER]).degraded
    assert store.health().state == "recovering"
    assert not store.take([CHARGE, OTHER]).degraded
    assert store.health() == Health()
