"""How the load generator reads responses, and what it does about errors."""

from __future__ import annotations

import threading

import pytest

from benchmarks import load
from tests.load.conftest import OK, TOO_MANY, Serve


def test_statuses_are_counted(serve: Serve) -> None:
    server = serve(lambda number: OK if number < 10 else TOO_MANY)
    report = load.run(load.Plan(url=server.url, requests=30, concurrency=3))
    assert report.statuses == {200: 10, 429: 20}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(OK, id="length"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length:3\r\n\r\nok\n", id="lower case"),
        pytest.param(b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", id="no reason"),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", id="204"),
        pytest.param(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n", id="304"),
        pytest.param(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK, id="interim"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"3;extension=1\r\nok\n\r\nA\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n",
            id="chunks",
        ),
        pytest.param(
            b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n",
            id="HTTP 1.0",
        ),
    ],
)
def test_the_end_of_a_response_is_found_and_its_connection_used_again(
    serve: Serve, answer: bytes
) -> None:
    server = serve(answer)
    report = load.run(load.Plan(url=server.url, requests=5, concurrency=1))
    assert list(report.statuses.values()) == [5]
    assert report.errors == {}
    assert server.connections == 1


def test_a_response_to_head_has_no_body_to_wait_for(serve: Serve) -> None:
    server = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n")
    report = load.run(load.Plan(url=server.url, requests=5, concurrency=1, method="HEAD"))
    assert report.statuses == {200: 5}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(
            b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 3\r\n\r\nok\n", id="announced"
        ),
        pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nok\n", id="HTTP 1.0"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nok\n", id="end of the body"),
    ],
)
def test_a_server_may_close_each_connection(serve: Serve, answer: bytes) -> None:
    server = serve(answer, closes=True)
    report = load.run(load.Plan(url=server.url, requests=20, concurrency=3))
    assert report.statuses == {200: 20}
    assert report.errors == {}
    assert server.connections == 20


# Transport errors


def test_a_refused_connection_is_counted(closed_port: int) -> None:
    report = load.run(load.Plan(url=f"http://127.0.0.1:{closed_port}/", requests=10))
    assert report.errors == {"connection refused": 10}
    assert report.requests == 10
    assert report.statuses == {}
    assert report.latencies_ms is None
    assert report.throughput == 0


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", "connection closed early"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nok\n", "connection closed early"),
        (b"220 mail.example ESMTP\r\n\r\n", "bad response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", "bad response"),
        (b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 100_000 + b"\r\n\r\n", "bad response"),
    ],
    ids=["nothing", "half a body", "another protocol", "no number", "endless header"],
)
def test_a_broken_response_is_counted(serve: Serve, answer: bytes, error: str) -> None:
    server = serve(answer, closes=True)
    report = load.run(load.Plan(url=server.url, requests=6, concurrency=2))
    assert report.errors == {error: 6}


def test_an_answer_that_does_not_come_is_a_timeout(serve: Serve) -> None:
    never = threading.Event()
    server = serve(lambda _: OK if never.wait() else None)
    report = load.run(load.Plan(url=server.url, requests=2, concurrency=2, timeout=0.05))
    never.set()
    assert report.errors == {"timeout": 2}


def test_an_error_does_not_end_the_run_nor_is_anything_sent_twice(serve: Serve) -> None:
    server = serve(lambda number: None if number % 3 == 0 else OK)
    report = load.run(load.Plan(url=server.url, requests=30, concurrency=4))
    assert report.statuses == {200: 20}
    assert report.errors == {"connection closed early": 10}
    assert len(server.requests) == 30
