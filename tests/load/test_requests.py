"""The requests that the load generator sends."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from benchmarks import load
from tests.load.conftest import OK, Serve


@pytest.mark.parametrize(("requests", "concurrency"), [(1, 1), (1, 20), (101, 20)])
def test_exactly_the_requests_asked_for_are_sent(
    serve: Serve, requests: int, concurrency: int
) -> None:
    server = serve()
    report = load.run(load.Plan(url=server.url, requests=requests, concurrency=concurrency))
    assert len(server.requests) == report.requests == requests
    assert report.statuses == {200: requests}
    assert report.errors == {}


def test_each_client_keeps_one_connection(serve: Serve) -> None:
    """All of them wait for the last to arrive, so that none can do the work of another."""
    together = threading.Barrier(4)

    def answer(_: int) -> bytes:
        together.wait()
        return OK

    server = serve(answer)
    load.run(load.Plan(url=server.url, requests=40, concurrency=4))
    assert server.connections == 4


def test_a_duration_ends_the_run(serve: Serve) -> None:
    server = serve()
    report = load.run(load.Plan(url=server.url, duration=0.1, concurrency=2))
    assert report.seconds >= 0.1
    assert len(server.requests) == report.requests >= 1
    assert report.statuses == {200: report.requests}


def test_the_request_names_method_target_and_host(serve: Serve) -> None:
    server = serve()
    load.run(load.Plan(url=f"{server.url}a/b?c=d#e", requests=1, method="POST"))
    [(line, headers)] = server.requests
    assert line == "POST /a/b?c=d HTTP/1.1"
    assert headers["Host"] == f"127.0.0.1:{server.server_port}"
    assert headers["Content-Length"] == "0"


def test_identities_are_addresses_spread_evenly(serve: Serve) -> None:
    server = serve()
    load.run(load.Plan(url=server.url, requests=70, concurrency=5, clients=7))
    assert Counter(server.sent("X-Forwarded-For")) == {f"198.18.0.{n}": 10 for n in range(7)}


def test_request_i_carries_identity_i_modulo_clients(serve: Serve) -> None:
    server = serve()
    load.run(
        load.Plan(url=server.url, requests=5, concurrency=1, clients=3, identity_header="X-API-Key")
    )
    sent = server.sent("X-API-Key")
    assert sent == ["client-0", "client-1", "client-2", "client-0", "client-1"]
    assert server.sent("X-Forwarded-For") == [None] * 5


def test_identities_go_on_after_256(serve: Serve) -> None:
    server = serve()
    load.run(load.Plan(url=server.url, requests=258, concurrency=1, clients=300))
    assert server.sent("X-Forwarded-For")[254:] == [
        "198.18.0.254",
        "198.18.0.255",
        "198.18.1.0",
        "198.18.1.1",
    ]


def test_no_identity_is_sent_unless_asked_for(serve: Serve) -> None:
    server = serve()
    load.run(load.Plan(url=server.url, requests=3))
    assert server.sent("X-Forwarded-For") == [None] * 3
