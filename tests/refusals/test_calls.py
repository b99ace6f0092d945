"""Refusals beside other calls, and the time that a call takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from flask_bucket import Charge, Decision, Limit
from flask_bucket.stores.refusals import RefusalStore
from tests.refusals.conftest import HOURLY, SECOND, Counting, World, charge


class Meanwhile(Counting):
    """A store that is refusing a call while another thread does something, once."""

    def __init__(self, world: World) -> None:
        super().__init__(lambda: world.now)
        self.act: Callable[[], object] | None = None

    def take(self, *arguments: Any) -> Decision:
        decision = super().take(*arguments)
        if not decision and self.act is not None:
            act, self.act = self.act, None
            act()
        return decision


OTHER = Charge(HOURLY, "bucket:{c}:other:n")
NEVER = Charge(HOURLY, "bucket:{c}:never:n", 2)


@pytest.mark.parametrize(
    "act",
    [
        lambda cached: cached.settle([charge(cost=-1)]),
        lambda cached: cached.reset("c"),
        lambda cached: cached.take([NEVER], held=[charge()]),
        lambda cached: cached.take([replace(NEVER, cost=3)], held=[charge()]),
    ],
    ids=["given back", "reset", "held by a remembered refusal", "held by a refused request"],
)
def test_a_refusal_does_not_outlive_tokens_that_return_during_its_call(
    world: World, act: Callable[[RefusalStore], object]
) -> None:
    store = Meanwhile(world)
    cached = world.cache(store)
    cached.take([NEVER])
    act(cached)  # however often tokens returned before
    store.settle([charge()])
    cached.take([NEVER])
    store.act = lambda: act(cached)
    assert not cached.take([charge()])
    assert cached.take([charge()])


def test_a_refusal_is_remembered_although_another_thread_is_allowed_meanwhile(
    world: World,
) -> None:
    store = Meanwhile(world)
    cached = world.cache(store)
    cached.take([charge()])
    cached.take([OTHER])
    cached.take([OTHER])
    store.act = lambda: cached.take([charge(key="bucket:{c}:third:n")])
    assert not cached.take([charge()])
    assert cached.take([charge()]).cached


class Slow(Counting):
    """A store whose calls take time: before it decides, and after."""

    def __init__(self, world: World, before: float, after: float) -> None:
        super().__init__(lambda: world.now)
        self._world, self._before, self._after = world, before, after

    def take(self, *arguments: Any) -> Decision:
        self._world.wait(self._before)
        decision = super().take(*arguments)
        self._world.wait(self._after)
        return decision


FAST = charge(Limit.parse("2/second burst 1"))


@pytest.fixture(params=[(0.1, 0), (0, 0.1), (0.1, 0.1)])
def slow(request: pytest.FixtureRequest, world: World) -> Slow:
    """A slow store without a token for `FAST`."""
    store = Slow(world, *request.param)
    store.settle([FAST])
    return store


def test_the_time_of_the_call_prolongs_no_refusal(world: World, slow: Slow) -> None:
    cached = world.cache(slow)
    refused = cached.take([FAST])
    assert refused.retry_after is not None
    world.now = refused.now + round(refused.retry_after * SECOND)
    assert cached.take([FAST])


def test_the_time_of_the_call_tells_nobody_too_short_a_wait(world: World, slow: Slow) -> None:
    cached = world.cache(slow)
    cached.take([FAST])
    repeated = cached.take([FAST])
    assert repeated.cached
    assert repeated.retry_after is not None
    world.wait(repeated.retry_after)
    assert slow.peek([FAST])
