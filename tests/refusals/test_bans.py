"""Bans and the refusal cache."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flask_bucket import Charge, Limit
from tests.refusals.conftest import SECOND, World, charge


def ban(**more: Any) -> Charge:
    return Charge(Limit.parse("9/hour"), "bucket:{c}:s:!ban", 0, kind="ban", lasts=SECOND, **more)


@pytest.mark.parametrize("place", ["charges", "held", "shadow"])
def test_as_long_as_a_ban_may_count_each_refusal_is_asked_for(world: World, place: str) -> None:
    asked = replace(charge(), counts_for=(ban().key,))
    world.take(asked)
    for _ in range(3):
        charges = [asked, ban()] if place == "charges" else [asked]
        held, shadow = [ban()] * (place == "held"), [ban()] * (place == "shadow")
        assert not world.cached.take(charges, held, shadow)
    assert world.store.takes == 4


def test_of_a_ban_that_has_begun_the_end_is_remembered(world: World) -> None:
    asked = replace(charge(), counts_for=(ban().key,))
    one = replace(ban(), limit=Limit.parse("1/hour"), lasts=10 * SECOND)
    world.take(asked, one)
    first = world.take(asked, one)
    world.wait(0.5)
    second = world.take(asked, one)
    assert (first.cached, second.cached) == (False, True)
    told = {outcome.kind: outcome for outcome in second.outcomes}["ban"]
    assert (told.retry_after, told.reset_after, told.remaining) == (9.5, 9.5, 0)
    world.wait(0.5)
    assert not world.take(asked, one).cached  # within a second, a reset elsewhere is seen


def test_a_refusal_from_the_cache_gives_back_no_ban(world: World) -> None:
    world.take(charge(key="bucket:{c}:s:other"))
    world.take(charge(key="bucket:{c}:s:other"))
    one = replace(ban(), limit=Limit.parse("1/hour"))
    asked = replace(charge(), counts_for=(one.key,))
    world.take(asked, one)
    world.take(asked, one)
    assert world.take(one, held=[replace(ban(), key="bucket:{c}:t:!ban")]).cached
    assert world.store.settles == 0
