"""Small servers that answer in known ways."""

from __future__ import annotations

import http.server
import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from email.message import Message
from typing import Any

import pytest

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n"
TOO_MANY = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        number = next(self.server.numbers)
        self.server.requests.append((self.requestline, self.headers))
        answer = self.server.answer(number)
        if answer is None:
            self.close_connection = True
        else:
            self.wfile.write(answer)
            self.close_connection = self.server.closes

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    """Answers request ``i`` with ``answer(i)``. If that is None, it closes the connection."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, answer: Callable[[int], bytes | None], *, closes: bool) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/"
        self.answer = answer
        self.closes = closes
        self.numbers = itertools.count()
        self.connections = 0
        self.requests: list[tuple[str, Message]] = []

    def sent(self, header: str) -> list[str | None]:
        return [headers[header] for _, headers in self.requests]

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections += 1
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet: some of the clients here go away without a word."""


class Serve:
    """Starts servers, and stops them after the test."""

    def __init__(self) -> None:
        self._servers: list[Server] = []

    def __call__(
        self, answer: bytes | Callable[[int], bytes | None] = OK, *, closes: bool = False
    ) -> Server:
        server = Server(answer if callable(answer) else lambda _: answer, closes=closes)
        self._servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return server

    def stop(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    starter = Serve()
    yield starter
    starter.stop()


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port which refuses connections: it is taken, but nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]
