"""The one job, on real servers: one bucket per client, whoever asks, in one round trip."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import pytest
from flask import Flask

from flask_bucket import Charge, Limit, Limiter, MemoryStore, RedisStore
from tests.conftest import START
from tests.processes import context
from tests.servers import Server

App = Callable[..., Flask]


def app_on(server: Server, *limits: str, **settings: object) -> Flask:
    """Make an app whose one view, at /, has these limits."""
    app = Flask(__name__)
    app.config.update(BUCKET_REDIS_URL=server.url, BUCKET_TIMEOUT=5, **settings)
    limiter = Limiter(app)

    def index() -> str:
        return "served"

    for limit in reversed(limits):
        index = limiter.limit(limit)(index)
    app.add_url_rule("/", view_func=index)
    return app


def statuses(app: Flask, times: int) -> list[int]:
    client = app.test_client()
    return [client.get("/").status_code for _ in range(times)]


@pytest.mark.parametrize(
    "limits", [["100/hour"], ["100/minute", "1000/hour", "10000/day"]], ids=["one", "three"]
)
def test_one_request_is_one_round_trip(server: Server, limits: list[str]) -> None:
    app = app_on(server, *limits)
    statuses(app, 1)  # connects, and loads the script
    with server.client() as watcher:
        watcher.config_resetstat()
        assert statuses(app, 10) == [200] * 10
        calls = {name: row["calls"] for name, row in watcher.info("commandstats").items()}
    inside = {"cmdstat_time": 10, "cmdstat_hmget": 10 * len(limits)}
    inside |= {"cmdstat_hset": 10 * len(limits), "cmdstat_pexpire": 10 * len(limits)}
    sent = {name: n for name, n in calls.items() if name not in inside}
    sent = {name: n for name, n in sent.items() if not name.startswith("cmdstat_config")}
    assert sent == {"cmdstat_evalsha": 10}
    assert {name: calls[name] for name in inside} == inside


def test_a_flood_that_is_refused_asks_the_server_once_a_second(valkey: Server) -> None:
    app = app_on(valkey, "1/hour")
    statuses(app, 1)
    with valkey.client() as watcher:
        watcher.config_resetstat()
        assert set(statuses(app, 50)) == {429}
        assert watcher.info("commandstats")["cmdstat_evalsha"]["calls"] <= 3


def hammer(url: str, capacity: int, barrier: object, grants: object) -> None:
    """Take until refused, in a process of its own."""
    store = RedisStore.from_url(url, timeout=10)
    charge = Charge(Limit(capacity, 1, 86_400), "bucket:{hot}:hammer:per-day")
    barrier.wait()  # type: ignore[attr-defined]  # a proxy
    granted = 0
    for _ in range(capacity // 4):
        granted += store.take([charge]).allowed
    grants.put(granted)  # type: ignore[attr-defined]  # a queue


def test_eight_processes_on_one_key_are_granted_exactly_its_capacity(valkey: Server) -> None:
    made = context()
    barrier, grants = made.Barrier(8), made.Queue()
    processes = [
        made.Process(target=hammer, args=(valkey.url, 1000, barrier, grants)) for _ in range(8)
    ]
    for process in processes:
        process.start()
    total = sum(grants.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
    assert total == 1000


class FixedWindow:
    """The way of most limiters: they count requests in windows that begin at whole multiples."""

    def __init__(self, limit: int, seconds: int) -> None:
        self.limit, self.length = limit, seconds * 1_000_000
        self.counts: Counter[int] = Counter()

    def allows(self, now: int) -> bool:
        window = now // self.length
        self.counts[window] += 1
        return self.counts[window] <= self.limit


def test_a_fixed_window_lets_twice_its_limit_through_and_a_bucket_does_not() -> None:
    minute = 60_000_000
    boundary = (START // minute + 1) * minute
    moments = [boundary - 1] * 100 + [boundary] * 100  # a microsecond apart
    window = FixedWindow(100, seconds=60)
    assert sum(window.allows(now) for now in moments) == 200
    store = MemoryStore()
    charge = Charge(Limit.parse("100/minute"), "bucket:{c}:s:per-minute")
    assert sum(store.take([charge], now=now).allowed for now in moments) == 100


@pytest.fixture
def traffic() -> Callable[[Flask, Callable[[], None]], Counter[int]]:
    """Send requests from four threads, and let something happen in the middle."""

    def send(app: Flask, meanwhile: Callable[[], None]) -> Counter[int]:
        seen: Counter[int] = Counter()
        lock, half = threading.Lock(), threading.Barrier(5)

        def worker() -> None:
            for n in range(100):
                if n == 30:
                    half.wait()
                status = app.test_client().get("/").status_code
                with lock:
                    seen[status] += 1

        threads = [threading.Thread(target=worker) for _ in range(4)]
        for thread in threads:
            thread.start()
        half.wait()
        meanwhile()
        for thread in threads:
            thread.join()
        return seen

    return send


def test_flushed_scripts_cost_one_token_a_request_and_no_error(
    valkey: Server, traffic: Callable[[Flask, Callable[[], None]], Counter[int]]
) -> None:
    app = app_on(valkey, "1000/day")

    def flush_often() -> None:
        with valkey.client() as client:
            for _ in range(50):
                client.script_flush()

    assert traffic(app, flush_often) == {200: 400}
    response = app.test_client().get("/")
    assert response.headers["X-RateLimit-Remaining"] == str(1000 - 401)


def test_a_restart_in_the_middle_of_traffic_reaches_no_client(
    own_server: Server, traffic: Callable[[Flask, Callable[[], None]], Counter[int]]
) -> None:
    app = app_on(own_server, "1000/day", BUCKET_RECOVERY_INTERVAL=0.05)
    assert traffic(app, own_server.restart) == {200: 400}
    own_server.wait_until_it_answers()
    for _ in range(1000):  # until the limiter has tried it again
        if "X-RateLimit-Remaining" in app.test_client().get("/").headers:
            break
    before = int(app.test_client().get("/").headers["X-RateLimit-Remaining"])
    assert int(app.test_client().get("/").headers["X-RateLimit-Remaining"]) == before - 1


def test_an_unreachable_server_lets_requests_pass_with_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Flask(__name__)
    app.config["BUCKET_REDIS_URL"] = "redis://127.0.0.1:1"
    limiter = Limiter(app, default_limits="1/hour")
    app.add_url_rule("/", view_func=lambda: "served", endpoint="index")
    assert statuses(app, 20) == [200] * 20
    assert "X-RateLimit-Limit" not in app.test_client().get("/").headers
    assert len(caplog.records) == 1
    assert limiter.enabled
