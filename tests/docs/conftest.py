"""The surroundings of the documentation's examples: their clocks, and what each one leaves."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from prometheus_client import REGISTRY

from flask_bucket.stores import memory
from tests.conftest import START


@dataclass(frozen=True, slots=True)
class Pace:
    """The seconds that pass while somebody repeats an example."""

    charge: float
    statement: float


#: Time stands still until an example sleeps.
STILL = Pace(0, 0)
#: Somebody pastes one statement or command at a time.
BY_HAND = Pace(0.002, 3)


class Clock:
    """The clock of in-process stores. ``time.sleep`` moves it, and so does the pace."""

    def __init__(self, pace: Pace) -> None:
        self.now = START
        self._pace = pace

    def __call__(self) -> int:
        self.sleep(self._pace.charge)
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1_000_000)

    def statement(self) -> None:
        """Let the time of one statement pass."""
        self.sleep(self._pace.statement)


@pytest.fixture(params=[STILL, BY_HAND], ids=["still", "by-hand"])
def clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace the clock, so that an example shows the same on every machine."""
    clock = Clock(request.param)
    monkeypatch.setattr(memory, "_monotonic_clock", lambda: clock)
    monkeypatch.setattr(time, "sleep", clock.sleep)
    return clock


@pytest.fixture(autouse=True)
def metrics_as_they_were() -> Iterator[None]:
    """Unregister the metrics that an example registered for the whole process."""
    before = set(REGISTRY._collector_to_names)
    yield
    for collector in set(REGISTRY._collector_to_names) - before:
        REGISTRY.unregister(collector)


@pytest.fixture(autouse=True)
def loggers_as_they_were() -> Iterator[None]:
    """Undo an example's changes to logging."""
    logger = logging.getLogger("flask_bucket")
    before = logger.level, list(logger.handlers), logger.propagate
    yield
    logger.level, logger.handlers, logger.propagate = before
