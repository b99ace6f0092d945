"""How the cost of a request grows: with limits, clients, capacity, endpoints and threads."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence

import redis
from flask import Flask
from werkzeug.test import EnvironBuilder

from benchmarks.apps import bare, ours
from benchmarks.in_process import ENVIRON, request
from flask_bucket import Charge, Limit, Limiter, RedisStore

Series = dict[int, float]

#: A limit whose buckets do not expire during the measurement.
SLOW = "1000000/day"


def _per_call(call: Callable[[int], object], calls: int) -> float:
    begin = time.perf_counter()
    for n in range(calls):
        call(n)
    return (time.perf_counter() - begin) / calls * 1e6


def _added(
    steps: Sequence[int], make: Callable[[int], Callable[[int], object]], rounds: int, calls: int
) -> Series:
    """Return the median microseconds that limits add to a request. All steps take turns.

    :param make: takes a step, and returns a function that sends the n-th request.
    """
    app = bare("")
    made = {step: make(step) for step in steps}
    for send in made.values():
        _per_call(send, calls)
    figures: dict[int, list[float]] = {step: [] for step in steps}
    for _ in range(rounds):
        unlimited = _per_call(lambda _: request(app), calls)
        for step in steps:
            figures[step].append(_per_call(made[step], calls) - unlimited)
    return {step: statistics.median(rounds) for step, rounds in figures.items()}


def _sending(app: Flask) -> Callable[[int], object]:
    return lambda _: request(app)


def by_limits(url: str, rounds: int = 30, calls: int = 100) -> Series:
    """The time that 1 to 10 limits add to a request."""

    def make(limits: int) -> Callable[[int], object]:
        return _sending(ours(url, [f"{10**8 + n}/minute" for n in range(limits)]))

    return _added(range(1, 11), make, rounds, calls)


def by_capacity(url: str, rounds: int = 30, calls: int = 100) -> Series:
    """The time that a limit adds to a request, with capacities from 1 to a thousand million."""

    def make(capacity: int) -> Callable[[int], object]:
        return _sending(ours(url, [f"1000000/second burst {capacity}"]))

    return _added([10**n for n in range(10)], make, rounds, calls)


def by_clients(url: str, most: int = 1_000_000, rounds: int = 30, calls: int = 100) -> Series:
    """The time that a limit adds to a request of a random client among 1 to a million.

    Each number of clients has its own database, so that all take turns.
    """
    steps = [10**n for n in range(len(str(most)))]
    with redis.Redis.from_url(url) as client:
        address = client.connection_pool.connection_kwargs
    databases = {
        clients: f"redis://{address['host']}:{address['port']}/{n}"
        for n, clients in enumerate(steps)
    }
    for clients, database in databases.items():
        _fill(database, clients)
    figures = _added(
        steps, lambda clients: _random_client(databases[clients], clients), rounds, calls
    )
    with redis.Redis.from_url(url) as client:
        client.flushall()
    return figures


def _fill(url: str, clients: int) -> None:
    state = {
        "tokens": Limit.parse(SLOW).full // 2,
        "last_refill": 1,
        "scale": Limit.parse(SLOW).scale,
    }
    with redis.Redis.from_url(url) as client:
        for begin in range(0, clients, 10_000):
            pipeline = client.pipeline(transaction=False)
            for n in range(begin, min(begin + 10_000, clients)):
                key = f"bucket:{{{_address(n)}}}:index:per-day"
                pipeline.hset(key, mapping=state)
                pipeline.expire(key, 86_400)
            pipeline.execute()


def _address(n: int) -> str:
    return f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}"


def _random_client(url: str, clients: int) -> Callable[[int], object]:
    app = ours(url, [SLOW])
    choose = random.Random(clients).randrange
    return lambda _: request(app, {**ENVIRON, "REMOTE_ADDR": _address(choose(clients))})


def by_threads(url: str, rounds: int = 5, calls: int = 2_000) -> Series:
    """The calls per second of one process with 1 to 32 threads."""
    store = RedisStore.from_url(url, timeout=5)
    charge = Charge(Limit(10**9, 10**6), "bucket:{c}:growth:threads")

    def together(threads: int) -> float:
        workers = [
            threading.Thread(
                target=_per_call, args=(lambda _: store.take([charge]), calls // threads)
            )
            for _ in range(threads)
        ]
        begin = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return calls / (time.perf_counter() - begin)

    steps = [1, 2, 4, 8, 16, 32]
    figures: dict[int, list[float]] = {step: [] for step in steps}
    for _ in range(rounds):
        for step in steps:
            figures[step].append(together(step))
    return {step: statistics.median(rounds) for step, rounds in figures.items()}


def by_endpoints(url: str, rounds: int = 30, calls: int = 100) -> Series:
    """The time that a limit adds to a request in an app with 1 to 1,000 limited endpoints."""

    def make(endpoints: int) -> Callable[[int], object]:
        app = Flask("growth")
        limiter = Limiter(app, redis=url)
        for n in range(endpoints):
            view = limiter.limit(f"{10**6 + n}/second")(lambda: "served")
            app.add_url_rule(f"/{n}", f"endpoint-{n}", view)
        environs = [
            EnvironBuilder(f"/{n}", environ_base={"REMOTE_ADDR": "127.0.0.1"}).get_environ()
            for n in range(endpoints)
        ]

        return lambda n: request(app, environs[n % endpoints])

    return _added([1, 10, 100, 1_000], make, rounds, calls)
