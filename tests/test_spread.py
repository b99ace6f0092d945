"""Charges over several slots, where a server fails in the middle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fakeredis
import pytest
import redis

from flask_bucket import Charge, Limit, StoreUnavailable
from flask_bucket.stores.redis.links import Call, link_by
from flask_bucket.stores.redis.script import Script
from flask_bucket.stores.redis.spread import Spread

NOW = 1_700_000_000_000_000
LIMIT = Limit.parse("10/hour")
#: In the order of their slots.
A, B, C = (f"bucket:{{c}}:{name}:per-hour" for name in "abc")


class Nodes:
    """A node for each key. A test says which calls of which node fail."""

    def __init__(self) -> None:
        self._prepare = link_by(fakeredis.FakeRedis()).prepare
        self.fails: Callable[[str, bytes], bool] = lambda key, mode: False
        self.calls: list[tuple[str, bytes]] = []
        self.spread = Spread(Script(self.prepare), str)

    def prepare(self, *arguments: Any) -> Call:
        count = arguments[0]
        key, mode = arguments[1], arguments[1 + count]
        assert set(arguments[1 : 1 + count]) == {key}

        def call() -> Any:
            self.calls.append((key, mode))
            if self.fails(key, mode):
                raise redis.ConnectionError("lost")
            return self._prepare(*arguments)()

        return call

    def remaining(self, *keys: str) -> list[int]:
        self.fails = lambda key, mode: False
        looks = [Charge(LIMIT, key, 0) for key in keys]
        return [outcome.remaining for outcome in self.spread.peek(looks, NOW).outcomes]


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


def charges(*keys: str, cost: int = 1) -> list[Charge]:
    return [Charge(LIMIT, key, cost) for key in keys]


def test_a_settlement_goes_on_after_a_node_fails(nodes: Nodes) -> None:
    nodes.fails = lambda key, mode: key == B
    with pytest.raises(StoreUnavailable):
        nodes.spread.settle(charges(A, B, C, cost=4), NOW)
    assert nodes.remaining(A, B, C) == [6, 10, 6]


def test_a_node_that_is_lost_while_tokens_are_given_back_changes_no_decision(
    nodes: Nodes,
) -> None:
    nodes.fails = lambda key, mode: (key, mode) == (A, b"settle")
    decision = nodes.spread.take([*charges(A, B), Charge(LIMIT, C, 11)], (), (), NOW)
    assert not decision
    assert [outcome.allowed for outcome in decision.outcomes] == [True, True, False]
    assert nodes.remaining(A, B, C) == [9, 10, 10]


def test_a_node_that_fails_gives_back_what_the_earlier_ones_took(nodes: Nodes) -> None:
    nodes.fails = lambda key, mode: key == C
    with pytest.raises(StoreUnavailable):
        nodes.spread.take(charges(A, B, C), (), (), NOW)
    assert nodes.remaining(A, B, C) == [10, 10, 10]


@pytest.mark.parametrize("mode", ["take", "peek", "settle"])
def test_an_error_names_a_key_of_the_node_that_failed(nodes: Nodes, mode: str) -> None:
    nodes.fails = lambda key, mode: key == B
    others = ((), ()) if mode == "take" else ()
    with pytest.raises(StoreUnavailable) as raised:
        getattr(nodes.spread, mode)(charges(A, B, C), *others, NOW)
    assert raised.value.key == B


def test_all_requests_charge_slots_in_one_order(nodes: Nodes) -> None:
    for keys in ((C, A, B), (B, C, A)):
        nodes.calls.clear()
        nodes.spread.take(charges(*keys), (), (), NOW)
        assert nodes.calls == [(A, b"take"), (B, b"take"), (C, b"take")]


def test_a_dry_run_charge_that_was_not_taken_is_not_given_back(nodes: Nodes) -> None:
    nodes.spread.settle(charges(A, cost=10), NOW)
    nodes.spread.take([Charge(LIMIT, A, 0), Charge(LIMIT, C, 11)], (), charges(A, cost=3), NOW)
    assert nodes.remaining(A) == [0]
