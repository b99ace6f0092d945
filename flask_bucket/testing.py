"""Help for tests: a clock that you turn, a store on it, and limits switched off.

As a pytest plugin, opted into by ``pytest_plugins = ["flask_bucket.testing"]`` in ``conftest.py``,
this adds the fixtures ``bucket_clock`` and ``bucket_store``. Works without pytest as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction

from flask import Flask

from .applications import enforcers_of
from .decorators import Registry
from .enforcing import Enforcer
from .extension import Limiter
from .limits import SECOND
from .stores.base import Store
from .stores.memory import MemoryStore

#: The time at which a clock starts, in microseconds: some time on 14 November 2023.
START = 1_700_000_000 * SECOND


class ManualClock:
    """A clock that stands still until it is advanced; for ``MemoryStore(clock=...)``.

    :param now: microseconds since 1970.

    >>> from flask_bucket import Charge, Limit, MemoryStore
    >>> clock = ManualClock()
    >>> store = MemoryStore(clock)
    >>> charge = Charge(Limit.parse("1/minute"), "bucket:{alice}:search:per-minute")
    >>> store.take([charge]).allowed, store.take([charge]).allowed
    (True, False)
    >>> clock.advance(60)
    >>> store.take([charge]).allowed
    True
    """

    def __init__(self, now: int = START) -> None:
        #: Microseconds since 1970.
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float | Fraction) -> None:
        """Let time pass, as little as a microsecond; backwards if negative.

        Between microseconds, it stops at the later one: after ``advance(decision.retry_after)``
        the wait is over.
        """
        self.now += -(-Fraction(str(seconds)) * SECOND // 1)


def use_store(app: Flask, store: Store, name: str | None = None) -> None:
    """Let an application's Limiters keep their buckets elsewhere: in tests, on a clock.

    :param name: only the Limiter of this name; by default all of them.
    :raises ConfigError: if there is no such Limiter.
    """
    for enforcer in enforcers_of(app, name).values():
        enforcer.store = store


def use_clock(app: Flask, name: str | None = None) -> ManualClock:
    """Let an application's Limiters count in full buckets, on a clock that you turn.

    :param name: only the Limiter of this name; by default all of them.
    :raises ConfigError: if there is no such Limiter.

    >>> app = Flask(__name__)
    >>> limiter = Limiter(app, application_limits="1/minute")
    >>> clock = use_clock(app)
    >>> client = app.test_client()
    >>> [client.get("/").status_code for _ in range(2)]
    [404, 429]
    >>> clock.advance(60)
    >>> client.get("/").status_code
    404
    """
    clock = ManualClock()
    use_store(app, MemoryStore(clock), name)
    return clock


@contextmanager
def limits_off(*where: Flask | Limiter) -> Iterator[None]:
    """Switch limits off for a while, whatever ``BUCKET_ENABLED`` says.

    :param where: applications, each with all of its Limiters; or Limiters, each in all of its
        applications.
    :raises ConfigError: for an application that has no Limiter.
    """
    switches: list[Registry | Enforcer] = []
    for each in where:
        switches += [each._registry] if isinstance(each, Limiter) else enforcers_of(each).values()
    before = [switch.enabled for switch in switches]
    for switch in switches:
        switch.enabled = False
    try:
        yield
    finally:
        for switch, enabled in zip(switches, before, strict=True):
            switch.enabled = enabled


try:
    import pytest
except ImportError:
    pass  # tests may be written with something else
else:

    @pytest.fixture
    def bucket_clock() -> ManualClock:
        """A clock that stands still until ``bucket_clock.advance(seconds)``."""
        return ManualClock()

    @pytest.fixture
    def bucket_store(bucket_clock: ManualClock) -> MemoryStore:
        """An empty store on ``bucket_clock``: ``Limiter(app, redis=bucket_store)``."""
        return MemoryStore(bucket_clock)
