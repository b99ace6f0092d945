"""The compared apps: one view without limits, with flask_bucket, and with Flask-Limiter."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import hiredis
import redis
from flask import Flask, g
from flask.wrappers import Response

from flask_bucket import AtOnce, Charge, Limit, Limiter, MemoryStore
from flask_bucket.stores.redis.links import SCRIPT
from flask_bucket.stores.redis.script import arguments

#: Limits that no benchmark exhausts, by how many a view has.
MANY = {
    0: [],
    1: ["100000000/minute"],
    3: ["100000000/minute", "1000000000/hour", "1000000000/day"],
}
ONE_A_DAY = ["1/day"]
AT_ONCE = ["1000 at once"]


def _with_view(app: Flask, decorate: Callable[[Any], Any] = lambda view: view) -> Flask:
    app.add_url_rule("/", "index", decorate(lambda: "served"))
    return app


def bare(url: str) -> Flask:
    """No limits at all."""
    return _with_view(Flask("bare"))


def ours(url: str, limits: list[str], in_process: bool = False) -> Flask:
    """flask_bucket with limits on the view."""
    app = Flask("ours")
    limiter = Limiter(app, redis=MemoryStore() if in_process else url)

    def decorate(view: Any) -> Any:
        for limit in reversed(limits):
            view = limiter.limit(limit)(view)
        return view

    return _with_view(app, decorate)


def leased(url: str) -> Flask:
    """flask_bucket with one hot bucket for all clients, whose tokens are taken ahead."""
    app = Flask("leased")
    app.config["BUCKET_WORKERS"] = 2
    limiter = Limiter(app, key_func=lambda: "all", redis=url)
    return _with_view(app, limiter.limit("1000000/second", lease=0.1))


def theirs(url: str, limits: list[str], strategy: str) -> Flask:
    """Flask-Limiter with its headers switched on."""
    import flask_limiter
    from flask_limiter.util import get_remote_address

    app = Flask("theirs")
    limiter = flask_limiter.Limiter(
        get_remote_address,
        app=app,
        storage_uri=url,
        strategy=strategy,
        headers_enabled=True,
        key_prefix=strategy,  # each keeps another type under the same keys
    )
    return _with_view(app, limiter.limit("; ".join(limits)))


def example(url: str) -> Flask:
    """The example app, whose /test allows 10 at once and 2 a second."""
    from example_app import create_app

    os.environ["FLASK_BUCKET_REDIS_URL"] = url
    return create_app()


def example_of_theirs(url: str) -> Flask:
    """The same /test with Flask-Limiter: 10 in 5 seconds is what comes closest."""
    import flask_limiter
    from flask_limiter.util import get_remote_address

    app = Flask("example of theirs")
    limiter = flask_limiter.Limiter(
        get_remote_address, app=app, storage_uri=url, headers_enabled=True, key_prefix="example"
    )
    app.add_url_rule("/test", "test", limiter.limit("10/5 seconds")(lambda: {"ok": True}))
    return app


def bare_example(url: str) -> Flask:
    """The same /test without a limit."""
    app = Flask("bare example")
    app.add_url_rule("/test", "test", lambda: {"ok": True})
    return app


def floor(url: str) -> Flask:
    """A socket, one packed EVALSHA and three headers: the least that any limiter can cost."""
    app = Flask("floor")
    charge = Charge(Limit.parse(MANY[1][0]), "bucket:{127.0.0.1}:floor:per-minute")
    (ask,) = raw_calls(url, ("take", charge))

    @app.before_request
    def before() -> None:
        g.reply = ask()

    @app.after_request
    def tell(response: Response) -> Response:
        response.headers["X-RateLimit-Limit"] = "1"
        response.headers["X-RateLimit-Remaining"] = "1"
        response.headers["X-RateLimit-Reset"] = "1"
        return response

    return _with_view(app)


def floor_of_two(url: str) -> Flask:
    """A socket, and a packed EVALSHA before the view and after it, which hold and free a slot."""
    app = Flask("floor of two")
    key = "bucket:{127.0.0.1}:floor:@at-once"
    slot = Charge(AtOnce(1000), key, kind="slot", member="raw", lasts=60_000_000)
    hold, free = raw_calls(url, ("take", slot), ("settle", slot.given_back()))

    @app.before_request
    def before() -> None:
        g.reply = hold()

    @app.after_request
    def after(response: Response) -> Response:
        free()
        return response

    return _with_view(app)


def raw_calls(url: str, *calls: tuple[str, Charge]) -> list[Callable[[], bytes]]:
    """Return functions that each send a packed EVALSHA over one socket, and read its reply."""
    client = redis.Redis.from_url(url)
    sha = client.script_load(SCRIPT)
    address = client.connection_pool.connection_kwargs
    connection = socket.create_connection((address["host"], address["port"]))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(packed: bytes) -> bytes:
        connection.sendall(packed)
        return connection.recv(4096)

    made: list[Callable[[], bytes]] = []
    for mode, charge in calls:
        command: Any = ("EVALSHA", sha, *arguments(mode.encode(), [charge]))
        made.append(partial(call, hiredis.pack_command(command)))
    return made


#: Every app by its name in results.
APPS: dict[str, Callable[[str], Flask]] = {
    "bare Flask": bare,
    "raw socket, 1 limit": floor,
    "raw socket, 1 slot": floor_of_two,
    "flask_bucket, 1 limit": partial(ours, limits=MANY[1]),
    "flask_bucket, 3 limits": partial(ours, limits=MANY[3]),
    "flask_bucket, 1 slot": partial(ours, limits=AT_ONCE),
    "flask_bucket, refused": partial(ours, limits=ONE_A_DAY),
    "flask_bucket, 1 leased": leased,
    "flask_bucket, in process": partial(ours, limits=MANY[1], in_process=True),
    "the example app": example,
    "the example with Flask-Limiter": example_of_theirs,
    "the example without limits": bare_example,
}
for _strategy in ("fixed-window", "moving-window", "sliding-window-counter"):
    APPS |= {
        f"Flask-Limiter {_strategy}, 1 limit": partial(theirs, limits=MANY[1], strategy=_strategy),
        f"Flask-Limiter {_strategy}, 3 limits": partial(theirs, limits=MANY[3], strategy=_strategy),
        f"Flask-Limiter {_strategy}, refused": partial(
            theirs, limits=ONE_A_DAY, strategy=_strategy
        ),
    }


def from_environment() -> Flask:
    """Make the app that BENCH_APP names, for gunicorn."""
    return APPS[os.environ["BENCH_APP"]](os.environ["BENCH_REDIS_URL"])
