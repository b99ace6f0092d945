"""Mixed load with faults at random, and a look at what leaks.

    python -m tests.outage.soak --minutes 10

Ends with exit code 1 and the reasons if anything leaked, or a total was out of its bounds.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.outage.faults import NUISANCES, OUTAGES, World
from tests.outage.proxy import Proxy
from tests.outage.service import INTERVAL, ORDINARY, POLICIES, TIMEOUT, Seen, Service, Stalls
from tests.servers import ENGINES, Server

THREADS, POOL = 4, 3
CLIENTS = [f"client{i}" for i in range(8)]
LIMIT = "40 per second burst 100"
RATE, CAPACITY, SHARE = 40, 100, 0.25

#: Faults after which the server has forgotten what it held, or part of it.
FORGETFUL = ("server killed and restarted", "LOADING")

#: Bytes that a process may grow by, once it is warm.
GROWTH = 32 * 1024 * 1024

FAULTS = {**OUTAGES, **NUISANCES}


@dataclass
class Tally:
    """The answers that one worker's clients saw."""

    statuses: Counter[int] = field(default_factory=Counter)
    #: Grants by client: of the store, and of the policy.
    by_store: Counter[str] = field(default_factory=Counter)
    by_policy: Counter[str] = field(default_factory=Counter)
    slow: int = 0
    #: Those that waited for longer than one timeout and ordinary work.
    late: int = 0
    worst: float = 0.0

    def note(self, seen: Seen) -> None:
        self.statuses[seen.status] += 1
        self.worst = max(self.worst, seen.seconds)
        self.slow += seen.slow
        self.late += seen.seconds >= TIMEOUT + ORDINARY
        if seen.status == 200:
            (self.by_store if seen.decided_by_store else self.by_policy)[seen.client] += 1


@dataclass
class Soak:
    """One run."""

    seconds: float
    chance: random.Random
    tallies: dict[str, Tally] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    #: Slow requests that a worker may have had.
    slow_allowed: float = 0.0
    complaints: list[str] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)

    def run(self) -> Soak:
        threads_before = threading.active_count()
        server = Server(ENGINES["valkey"]()).start()
        try:
            with Proxy(server.port) as proxy, Stalls() as stalls:
                self._soak(World(server, proxy), stalls)
                self._wait_for_no(lambda: proxy.connections, "connections left open")
        finally:
            server.thaw()
            server.stop()
        self._wait_for_no(lambda: threading.active_count() - threads_before, "threads left running")
        warm, last = self.memory[len(self.memory) // 3], self.memory[-1]
        if last - warm > GROWTH:
            self.complaints.append(f"memory grew from {warm:,} to {last:,} bytes")
        return self

    def _soak(self, world: World, stalls: Stalls) -> None:
        services = {
            policy: Service(
                world.proxy.url,
                policy,
                {
                    "BUCKET_MAX_CONNECTIONS": POOL,
                    "BUCKET_APPLICATION_LIMITS": LIMIT,
                    # Each worker has buckets of its own, so that each can be checked alone.
                    "BUCKET_KEY_PREFIX": f"bucket.{policy}",
                },
                share=SHARE,
                limit="1000000 per day",
            )
            for policy in POLICIES
        }
        self.tallies = {policy: Tally() for policy in services}
        over, began = threading.Event(), time.monotonic()
        loads = [
            threading.Thread(target=self._load, args=(service, self.tallies[policy], over))
            for policy, service in services.items()
            for _ in range(THREADS)
        ]
        for load in loads:
            load.start()
        try:
            while time.monotonic() < began + self.seconds:
                self._hurt(world)
                if world.proxy.connections > POOL * len(services):
                    self.complaints.append(f"{world.proxy.connections} connections at once")
                self.memory.append(_memory())
        finally:
            over.set()
            for load in loads:
                load.join()
        for service in services.values():
            service.recover()
        self._judge(time.monotonic() - began, stalls)
        for service in services.values():
            service.close()

    def _load(self, service: Service, tally: Tally, over: threading.Event) -> None:
        chance = random.Random(self.chance.random())
        try:
            while not over.is_set():
                tally.note(service.get(chance.choice(CLIENTS)))
                service.seen.clear()
                time.sleep(chance.random() * 0.02)
        except BaseException as error:
            self.complaints.append(f"{service.policy}: {error!r}")
            raise

    def _hurt(self, world: World) -> None:
        name = self.chance.choice(list(FAULTS))
        self.faults[name] += 1
        began = time.monotonic()
        with FAULTS[name](world):
            time.sleep(self.chance.uniform(0.1, 4 * INTERVAL))
        time.sleep(self.chance.uniform(0, 3 * INTERVAL))
        lasted = time.monotonic() - began
        # All threads may be on their way when it begins, and when it begins to recover.
        self.slow_allowed += 2 * THREADS + lasted / INTERVAL

    def _judge(self, elapsed: float, stalls: Stalls) -> None:
        forgotten = sum(self.faults[name] for name in FORGETFUL)
        for policy, tally in self.tallies.items():
            say = partial(self._unless, policy)
            expected = {200, 429, 503} if policy == "deny" else {200, 429}
            say(set(tally.statuses) <= expected, f"statuses {dict(tally.statuses)}")
            # Whenever the machine stands still, it does so for all threads of a worker.
            stalled = THREADS * stalls.count
            say(tally.late <= stalled, f"{tally.late} late requests, {tally.worst:.2f} s at worst")
            most_slow = self.slow_allowed + stalled
            say(tally.slow <= most_slow, f"{tally.slow} slow requests, {most_slow:.0f} allowed")
            most = CAPACITY * (1 + forgotten) + RATE * elapsed + 1
            for client in CLIENTS:
                say(
                    tally.by_store[client] <= most,
                    f"{tally.by_store[client]} of {most:.0f} granted",
                )
                if policy == "local":
                    # An outage may begin between the two charges of a request: then the store
                    # granted the one, and the policy the other.
                    between = THREADS * sum(self.faults.values())
                    locally = SHARE * (CAPACITY + RATE * elapsed) + 1 + between
                    granted = tally.by_policy[client]
                    say(granted <= locally, f"{granted} of {locally:.0f} granted locally")
            say(policy != "deny" or not tally.by_policy, "granted, though the policy denies")

    def _unless(self, policy: str, right: bool, complaint: str) -> None:
        if not right:
            self.complaints.append(f"{policy}: {complaint}")

    def _wait_for_no(self, count: object, what: str) -> None:
        deadline = time.monotonic() + 10
        while (left := count()) > 0:  # type: ignore[operator]
            if time.monotonic() > deadline:
                self.complaints.append(f"{left} {what}")
                return
            time.sleep(0.05)

    def report(self) -> str:
        lines = [f"{self.seconds:.0f} s, {sum(self.faults.values())} faults"]
        for policy, tally in self.tallies.items():
            total = sum(tally.statuses.values())
            lines.append(
                f"{policy:6} {total:>9,} requests {dict(sorted(tally.statuses.items()))}, "
                f"{tally.slow} slow, {tally.late} late, {1000 * tally.worst:.0f} ms at worst"
            )
        lines.append(f"memory {self.memory[0]:,} -> {self.memory[-1]:,} bytes")
        return "\n".join([*lines, *self.complaints, "" if self.complaints else "Nothing leaked."])


def _memory() -> int:
    """Return the bytes in use by this process; 0 where that cannot be found out."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * 4096


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    options = parser.parse_args()
    logging.getLogger("flask_bucket").setLevel(logging.CRITICAL)
    soak = Soak(60 * options.minutes, random.Random(options.seed)).run()
    sys.stdout.write(f"seed {options.seed}\n{soak.report()}\n")
    return 1 if soak.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
