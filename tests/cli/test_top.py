"""``flask bucket top``: the emptiest buckets of all clients, on a real server."""

from __future__ import annotations

import time

import pytest
from flask import Flask

from tests.cli.conftest import get, run_in
from tests.servers import Server


def test_with_all_buckets_full_top_is_a_sentence(app: Flask) -> None:
    assert run_in(app)("top").out == "All buckets are full.\n"


def test_the_emptiest_buckets_come_first(app: Flask) -> None:
    for times, address in ((1, "203.0.113.1"), (5, "203.0.113.2"), (3, "203.0.113.3")):
        get(app, "/search", times, address)
    buckets = run_in(app)("top", "-n", 2, "--json").data["buckets"]
    assert [(b["client"], b["tokens"]) for b in buckets] == [("203.0.113.2", 0), ("203.0.113.3", 2)]
    assert run_in(app)("top").out.splitlines()[1].split()[0] == "203.0.113.2"


def test_keys_that_are_no_buckets_are_passed_over(app: Flask, valkey: Server) -> None:
    with valkey.client() as client:
        client.set("bucket:{a}:search:per-minute", "text")
        client.hset("bucket:{b}:search:per-minute", "colour", "red")
    assert run_in(app)("top", "--json").data["buckets"] == []


def test_watching_looks_again_until_it_is_stopped(
    app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    get(app, "/search", 5)
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", nap)
    said = run_in(app)("top", "--watch", "--interval", 0.5)
    assert (said.code, naps) == (0, [0.5] * 3)
    assert said.out.count("203.0.113.7") == 3
