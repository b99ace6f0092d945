"""A clock that is moved by hand, a store that counts its calls, and words of the domain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from flask import Flask, request
from flask.testing import FlaskClient

from flask_bucket import Charge, Decision, Limiter, MemoryStore
from tests.conftest import START


class Clock:
    """Microseconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += round(seconds * 1_000_000)


class CountingStore(MemoryStore):
    """Remembers the name of each call, and the keys that were charged."""

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        super().__init__(clock)
        self.calls: list[str] = []
        self.keys: list[str] = []

    def take(
        self,
        charges: Sequence[Charge],
        held: Sequence[Charge] = (),
        shadow: Sequence[Charge] = (),
        now: int | None = None,
    ) -> Decision:
        self.calls.append("take")
        self.keys += [charge.key for charge in (*charges, *shadow)]
        return super().take(charges, held, shadow, now)

    def peek(self, charges: Sequence[Charge], now: int | None = None) -> Decision:
        self.calls.append("peek")
        return super().peek(charges, now)

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        self.calls.append("settle")
        super().settle(charges, now)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def buckets(clock: Clock) -> CountingStore:
    """The store of the application under test."""
    return CountingStore(clock)


@pytest.fixture
def app() -> Flask:
    return Flask("app_under_test")


@pytest.fixture
def limiter(app: Flask, buckets: CountingStore) -> Limiter:
    return Limiter(app, redis=buckets)


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return app.test_client()


def answer(text: str = "fine") -> Callable[[], str]:
    """Return a new view."""

    def view() -> str:
        return text

    return view


def statuses(client: FlaskClient, path: str, times: int, **options: Any) -> list[int]:
    """Send the same request several times, and return the status of each."""
    return [client.open(path, **options).status_code for _ in range(times)]


def allowed(client: FlaskClient, path: str, most: int = 30, **options: Any) -> int:
    """Send requests until one is refused; return how many were not."""
    for n in range(most):
        if client.open(path, **options).status_code == 429:
            return n
    return most


def remaining(client: FlaskClient, path: str, **options: Any) -> int:
    """Send a request, and return the tokens that its headers say remain."""
    return int(client.open(path, **options).headers["X-RateLimit-Remaining"])


def refused(client: FlaskClient, path: str = "/") -> Any:
    """Send requests until one is not answered well, and return that."""
    for _ in range(5):
        response = client.get(path)
        if response.status_code != 200:
            return response
    raise AssertionError("nothing was refused")


def in_use(buckets: CountingStore) -> int:
    """Return how many slots are held, whoever holds them."""
    now = buckets._clock()
    holders = [kept for kept in buckets._states.values() if isinstance(kept, Mapping)]
    return sum(free > now for held in holders for free in held.values())


def nested(app: Flask) -> Callable[[], Any]:
    """Return a view that sends the next of ?deep requests while it runs, and lists all statuses."""

    def view() -> Any:
        deep = int(request.args.get("deep", 1))
        if deep <= 1:
            return [200]
        inner: Any = app.test_client().get(request.path, query_string={"deep": deep - 1})
        return [200, *(inner.json if inner.status_code == 200 else [inner.status_code])]

    return view


def words() -> Iterator[bytes]:
    yield b"one "
    yield b"two"
