"""An application under a policy, and what its clients see."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from flask import Flask

from flask_bucket import Limiter, request_header
from flask_bucket.stores.breaker import Health

#: Seconds. Larger than the defaults, so that a loaded machine is not taken for a fault.
TIMEOUT, INTERVAL = 0.2, 0.3

#: Seconds that a request takes without any fault, on a loaded machine.
ORDINARY = 1.0

POLICIES = ("allow", "deny", "local")

#: Most of the tokens of a bucket: a day's, so that none return during a test.
CAPACITY = 1000
SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Seen:
    """A response, as a client sees it."""

    client: str
    status: int
    seconds: float
    headers: dict[str, str]

    @property
    def decided_by_store(self) -> bool:
        return "X-RateLimit-Remaining" in self.headers

    @property
    def slow(self) -> bool:
        """Whether it waited for something that did not come."""
        return self.seconds >= 0.9 * TIMEOUT


@dataclass
class Service:
    """One worker: an application and a client of it."""

    url: str
    policy: str = "allow"
    options: dict[str, Any] = field(default_factory=dict)
    redis: object = None
    share: float = SHARE
    limit: str = f"{CAPACITY} per day"
    seen: list[Seen] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.app = Flask("service")
        self.app.config.update(
            PROPAGATE_EXCEPTIONS=False,
            BUCKET_TIMEOUT=TIMEOUT,
            BUCKET_RECOVERY_INTERVAL=INTERVAL,
            BUCKET_ON_ERROR=self.policy,
            BUCKET_LOCAL_SHARE=self.share,
            BUCKET_REFUSAL_CACHE=0,
            **self.options,
        )
        if self.redis is None:
            self.app.config["BUCKET_REDIS_URL"] = self.url
        self.limiter = Limiter(self.app, key_func=request_header("X-Client"), redis=self.redis)

        @self.app.get("/")
        @self.limiter.limit(self.limit)
        def index() -> str:
            return "fine"

    def get(self, client: str = "alice") -> Seen:
        began = time.monotonic()
        response = self.app.test_client().get("/", headers={"X-Client": client})
        seconds = time.monotonic() - began
        headers = dict(response.headers.to_wsgi_list())
        seen = Seen(client, response.status_code, seconds, headers)
        self.seen.append(seen)
        return seen

    def health(self) -> Health:
        with self.app.app_context():
            return self.limiter.health()

    def close(self) -> None:
        state = self.app.extensions["flask_bucket"]["bucket"]
        state.store.close()

    def recover(self, patience: float = 10) -> float:
        """Send requests until the store decides; return the seconds that this took."""
        began = time.monotonic()
        while True:
            if self.get("probe").decided_by_store:
                return time.monotonic() - began
            assert time.monotonic() - began < patience, "the service did not recover"
            time.sleep(0.005)


class Stalls:
    """Measures for how long this machine stood still, so that no test blames the code for it."""

    def __init__(self) -> None:
        self.longest, self.count = 0.0, 0
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._run)

    def __enter__(self) -> Stalls:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watch.join()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._over.wait(0.005):
            now = time.monotonic()
            stall, last = now - last - 0.005, now
            self.longest = max(self.longest, stall)
            self.count += stall > 0.2 * TIMEOUT


def at_once(*calls: Callable[[], object]) -> None:
    """Run calls at the same time, and wait for all."""
    errors: list[BaseException] = []

    def run(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def slow(seen: Iterable[Seen]) -> list[Seen]:
    return [one for one in seen if one.slow]
