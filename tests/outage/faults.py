"""The faults: each a context in which the server, or the way to it, is hurt."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import redis

from tests.outage.proxy import Proxy
from tests.servers import Server


@dataclass
class World:
    """A server, the way to it, and what the services call the bucket in question."""

    server: Server
    proxy: Proxy


Fault = Callable[[World], AbstractContextManager[None]]


@contextmanager
def closed_port(world: World) -> Iterator[None]:
    world.proxy.refuse()
    yield
    world.proxy.listen()


@contextmanager
def black_hole_at_connect(world: World) -> Iterator[None]:
    world.proxy.hang()
    yield
    world.proxy.listen()


@contextmanager
def black_hole(world: World) -> Iterator[None]:
    world.proxy.black_hole = True
    yield
    world.proxy.black_hole = False
    world.proxy.reset()


@contextmanager
def frozen(world: World) -> Iterator[None]:
    world.server.freeze()
    yield
    world.server.thaw()


@contextmanager
def killed_and_restarted(world: World) -> Iterator[None]:
    world.server.kill()
    yield
    world.server.start()


@contextmanager
def cut_and_silent(world: World) -> Iterator[None]:
    world.proxy.cut_after = 5
    yield
    world.proxy.cut_after = None


@contextmanager
def cut_and_reset(world: World) -> Iterator[None]:
    world.proxy.cut_after, world.proxy.reset_when_cut = 5, True
    yield
    world.proxy.cut_after = None


@contextmanager
def killed_during_requests(world: World) -> Iterator[None]:
    world.proxy.cut_after, world.proxy.reset_when_cut = 0, True
    yield
    world.proxy.cut_after = None


@contextmanager
def killed_between_requests(world: World) -> Iterator[None]:
    with world.server.client() as admin:
        before = world.proxy.ended
        killed = admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        # Until the clients can know.
        deadline = time.monotonic() + 10
        while world.proxy.ended < before + killed and time.monotonic() < deadline:
            time.sleep(0.01)
        yield


@contextmanager
def half_open(world: World) -> Iterator[None]:
    world.proxy.half_open()
    yield


@contextmanager
def latency_50_ms(world: World) -> Iterator[None]:
    world.proxy.latency = 0.05
    yield
    world.proxy.latency = 0


@contextmanager
def latency_500_ms(world: World) -> Iterator[None]:
    world.proxy.latency = 0.5
    yield
    world.proxy.latency = 0


@contextmanager
def loading(world: World) -> Iterator[None]:
    with world.server.client() as admin:
        for first in range(0, 5000, 1000):
            admin.mset({f"filler:{i}": "x" for i in range(first, first + 1000)})
        admin.save()
    world.server.kill()
    options = world.server.options
    # Options for debugging servers: microseconds for each key, and how often requests are heard.
    slowly = ("--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024")
    world.server.options = (*options, *slowly)
    world.server.start()
    world.server.options = options
    yield
    with world.server.client() as admin:
        admin.config_set("key-load-delay", 0)
        while admin.info("persistence")["loading"]:
            time.sleep(0.01)


@contextmanager
def out_of_memory(world: World) -> Iterator[None]:
    with world.server.client() as admin:
        admin.config_set("maxmemory-policy", "noeviction")
        admin.config_set("maxmemory", 1)
        yield
        admin.config_set("maxmemory", 0)


@contextmanager
def read_only(world: World) -> Iterator[None]:
    with world.server.client() as admin:
        admin.execute_command("REPLICAOF", "127.0.0.1", "1")
        yield
        admin.execute_command("REPLICAOF", "NO", "ONE")


@contextmanager
def busy(world: World) -> Iterator[None]:
    with world.server.client() as admin:
        admin.config_set("lua-time-limit", 20)

        def spin() -> None:
            with world.server.client() as client, contextlib.suppress(redis.RedisError):
                client.connection_pool.connection_kwargs["socket_timeout"] = 30
                client.eval("while true do end", 0)

        spinning = threading.Thread(target=spin)
        spinning.start()
        time.sleep(0.1)
        yield
        admin.script_kill()
        spinning.join()


@contextmanager
def forbidden(world: World) -> Iterator[None]:
    with world.server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "default", "-hset")
        yield
        admin.execute_command("ACL", "SETUSER", "default", "+hset")


@contextmanager
def too_many_clients(world: World) -> Iterator[None]:
    with world.server.client() as admin:
        most = admin.config_get("maxclients")["maxclients"]
        admin.config_set("maxclients", 1)
        admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        yield
        admin.config_set("maxclients", most)


@contextmanager
def scripts_flushed(world: World) -> Iterator[None]:
    with world.server.client() as admin:
        admin.script_flush()
        yield
        admin.script_flush()


#: Those that end in an outage, by the words of the documentation.
OUTAGES: dict[str, Fault] = {
    "port closed": closed_port,
    "black hole at connect": black_hole_at_connect,
    "black hole on open connections": black_hole,
    "server frozen (SIGSTOP)": frozen,
    "server killed and restarted": killed_and_restarted,
    "connections killed during requests": killed_during_requests,
    "replies cut, then silence": cut_and_silent,
    "replies cut, then reset": cut_and_reset,
    "500 ms latency": latency_500_ms,
    "LOADING": loading,
    "OOM, noeviction": out_of_memory,
    "READONLY": read_only,
    "BUSY script": busy,
    "NOPERM": forbidden,
    "maxclients reached": too_many_clients,
}

#: Those that a request gets over: the limits hold throughout.
NUISANCES: dict[str, Fault] = {
    "connections killed between requests": killed_between_requests,
    "50 ms latency": latency_50_ms,
    "script cache flushed": scripts_flushed,
}
