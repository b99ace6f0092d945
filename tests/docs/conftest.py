"""The surroundings of the documentation's examples: time stands still until they sleep."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest
from prometheus_client import REGISTRY

from flask_bucket.stores import memory
from tests.conftest import START


class Clock:
    """The clock of in-process stores, which ``time.sleep`` moves."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1_000_000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Stop the clock, so that an example shows the same on every machine."""
    clock = Clock()
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
