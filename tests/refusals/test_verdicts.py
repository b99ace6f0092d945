"""The verdicts are those of the store alone, whatever is done."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from flask_bucket import Charge, Limit, MemoryStore
from tests.refusals.conftest import World

LIMITS = (
    Limit.parse("2/hour"),
    Limit.parse("5/second burst 3"),
    Limit.parse("1.9/s burst 2"),
    Limit.parse("3/second burst 10000000000"),  # in ticks of 1 ms
    Limit.parse("9999991/day burst 900000000"),  # in ticks of 1 s
)


@st.composite
def charges(draw: st.DrawFn) -> Charge:
    limit = draw(st.sampled_from(LIMITS))
    most = st.integers(limit.capacity - 3, limit.capacity + 1)
    cost = draw(most if limit.tick > 1 else st.integers(0, 4))
    return Charge(limit, draw(st.sampled_from(["bucket:{c}:a:n", "bucket:{c}:b:n"])), cost)


ASKED = charges()
STEP = st.one_of(
    st.tuples(st.just("take"), st.lists(ASKED, min_size=1, max_size=3)),
    st.tuples(st.just("give back"), ASKED),
    st.tuples(st.just("reset"), st.none()),
    st.tuples(st.just("wait"), st.sampled_from([1, 1_000, 100_000, 199_999, 500_000, 2_000_000])),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEP, min_size=5, max_size=40))
def test_its_verdicts_are_those_of_the_store_alone(steps: list[tuple[str, Any]]) -> None:
    world = World()
    alone = MemoryStore(lambda: world.now)
    for what, argument in steps:
        if what == "take":
            mine, theirs = world.take(*argument), alone.take(argument)
            assert mine.allowed == theirs.allowed
            if mine.cached and len(argument) == 1:
                (told,), (true,) = mine.outcomes, theirs.outcomes
                # An answer does not tell parts of a token: rather a tick late than early.
                (earlier,) = alone.peek(argument, world.now - told.limit.tick).outcomes
                assert earlier.remaining <= told.remaining <= true.remaining
                if told.retry_after is None or true.retry_after is None:
                    assert told.retry_after == true.retry_after
                else:
                    assert -1e-9 <= told.retry_after - true.retry_after <= 1.1e-6
        elif what == "give back":
            given = [Charge(argument.limit, argument.key, -argument.cost)]
            world.cached.settle(given)
            alone.settle(given)
        elif what == "reset":
            world.cached.reset("c")
            alone.reset("c")
        else:
            world.now += argument
