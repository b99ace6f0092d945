"""How the cost of a call grows: with limits, clients, threads, capacity and endpoints."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence

import redis
from flask import Flask
from werkzeug.test import EnvironBuilder

from benchmarks.in_process import request
from flask_bucket import Charge, Limit, Limiter, RedisStore

Series = dict[int, float]


def _per_call(call: Callable[[int], object], calls: int) -> float:
    begin = time.perf_counter()
    for n in range(calls):
        call(n)
    return (time.perf_counter() - begin) / calls * 1e6


def _medians(
    steps: Sequence[int], call: Callable[[int], Callable[[int], object]], rounds: int, calls: int
) -> Series:
    """Return the median microseconds a call at each step, all steps in turn in each round."""
    made = {step: call(step) for step in steps}
    figures: dict[int, list[float]] = {step: [] for step in steps}
    for _ in range(rounds):
        for step in steps:
            figures[step].append(_per_call(made[step], calls))
    return {step: statistics.median(rounds) for step, rounds in figures.items()}


def by_limits(url: str, rounds: int = 30, calls: int = 100) -> Series:
    """Microseconds of a call with 1 to 10 limits."""
    store = RedisStore.from_url(url, timeout=5)

    def make(limits: int) -> Callable[[int], object]:
        charges = [
            Charge(Limit(10**9, 10**6 + n), f"bucket:{{c}}:growth:limit-{n}") for n in range(limits)
        ]
        return lambda _: store.take(charges)

    return _medians(range(1, 11), make, rounds, calls)


def by_capacity(url: str, rounds: int = 30, calls: int = 100) -> Series:
    """Microseconds of a call with capacities of 1 to a thousand million."""
    store = RedisStore.from_url(url, timeout=5)

    def make(capacity: int) -> Callable[[int], object]:
        charge = Charge(Limit(capacity, 10**6), f"bucket:{{c}}:growth:capacity-{capacity}")
        return lambda _: store.take([charge])

    return _medians([10**n for n in range(10)], make, rounds, calls)


def by_clients(url: str, most: int = 1_000_000, rounds: int = 20, calls: int = 100) -> Series:
    """Microseconds of a call for a random one of 1 to a million clients that have a bucket."""
    store = RedisStore.from_url(url, timeout=5)
    limit = Limit(10**6, 1)
    key = "bucket:{{{}}}:growth:per-second".format
    figures: Series = {}
    filled = 0
    with redis.Redis.from_url(url) as client:
        clients = 1
        while clients <= most:
            for begin in range(filled, clients, 10_000):
                pipeline = client.pipeline(transaction=False)
                for n in range(begin, min(begin + 10_000, clients)):
                    state = {"tokens": 1, "last_refill": 1, "scale": limit.scale}
                    pipeline.hset(key(n), mapping=state)
                pipeline.execute()
            filled = clients
            take = _random_client(store, limit, key, clients)
            figures |= _medians([clients], lambda _, take=take: take, rounds, calls)  # type: ignore[misc]  # bound now
            clients *= 10
        client.flushall()
    return figures


def _random_client(
    store: RedisStore, limit: Limit, key: Callable[[int], str], clients: int
) -> Callable[[int], object]:
    choose = random.Random(clients).randrange
    return lambda _: store.take([Charge(limit, key(choose(clients)))])


def by_threads(url: str, rounds: int = 5, calls: int = 2_000) -> Series:
    """Calls a second of 1 to 32 threads of one process together."""
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
    """Microseconds of a request to one of 1 to 1,000 endpoints, each with a limit of its own."""

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

    return _medians([1, 10, 100, 1_000], make, rounds, calls)
