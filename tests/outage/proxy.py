"""A TCP proxy that does to connections what networks do."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time

from tests.servers import free_port

_RESET = struct.pack("ii", 1, 0)


class Proxy:
    """Stands between a client and a server on this host, and passes everything, until told not to.

    These can be set at any time, for existing connections and for new ones:

    * ``latency``: seconds added to each reply.
    * ``cut_after``: of each reply, only so many bytes pass.
    * ``reset_when_cut``: the connection is reset then; else it stays, and is silent.
    * ``black_hole``: nothing passes, and nobody is told.
    """

    def __init__(self, port: int) -> None:
        self.target = port
        self.port = free_port()
        self.latency = 0.0
        self.cut_after: int | None = None
        self.reset_when_cut = False
        self.black_hole = False
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        #: Connections of clients that ever were, and those that their clients know to be over.
        self.begun, self.ended = 0, 0
        self._deaf: set[socket.socket] = set()
        self._fillers: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self.listen()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def connections(self) -> int:
        """How many connections of clients there are."""
        return self.begun - self.ended

    def listen(self) -> None:
        """Accept connections, after `refuse` or `hang`."""
        self._stop_listening()
        self._listener = self._bound(100)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def refuse(self) -> None:
        """Reset all connections and close the port."""
        self._stop_listening()
        self.reset()

    def hang(self) -> None:
        """Reset all connections, and leave attempts to connect without an answer."""
        self.refuse()
        self._listener = self._bound(0)
        # Once the queue is full, Linux drops further attempts.
        for _ in range(3):
            filler = socket.socket()
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(("127.0.0.1", self.port))
            self._fillers.append(filler)
        time.sleep(0.05)

    def reset(self) -> None:
        """Reset all connections."""
        for pair in tuple(self._pairs):
            self._cut(pair)

    def half_open(self) -> None:
        """Lose the server's end of all connections, and tell no client. New connections work."""
        with self._lock:
            for client, server in self._pairs:
                self._deaf.add(client)
                _end(server)

    def close(self) -> None:
        self._stop_listening()
        self.reset()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _bound(self, backlog: int) -> socket.socket:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(backlog)
        return listener

    def _stop_listening(self) -> None:
        for filler in self._fillers:
            filler.close()
        self._fillers = []
        if self._listener is not None:
            _end(self._listener)
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.socket()
            try:
                server.connect(("127.0.0.1", self.target))
            except OSError:
                server.close()
                _reset(client)
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = (client, server)
            with self._lock:
                self._pairs.add(pair)
                self.begun += 1
            for pump in (self._requests, self._replies):
                threading.Thread(target=pump, args=(pair,), daemon=True).start()

    def _requests(self, pair: tuple[socket.socket, socket.socket]) -> None:
        client, server = pair
        while data := _received(client):
            if not self.black_hole and client not in self._deaf:
                with contextlib.suppress(OSError):
                    server.sendall(data)
        self._cut(pair, reset=False)

    def _replies(self, pair: tuple[socket.socket, socket.socket]) -> None:
        client, server = pair
        while data := _received(server):
            if self.latency:
                time.sleep(self.latency)
            if self.black_hole or client in self._deaf:
                continue
            if self.cut_after is not None:
                data = data[: self.cut_after]
            with contextlib.suppress(OSError):
                client.sendall(data)
            if self.cut_after is not None:
                if self.reset_when_cut:
                    self._cut(pair)
                else:
                    self._deaf.add(client)
        if client not in self._deaf:
            self._cut(pair, reset=False)

    def _cut(self, pair: tuple[socket.socket, socket.socket], reset: bool = True) -> None:
        with self._lock:
            if pair not in self._pairs:
                return
            self._pairs.remove(pair)
            self._deaf.discard(pair[0])
        _end(pair[1])
        if reset:
            _reset(pair[0])
        else:
            _end(pair[0])
        with self._lock:
            self.ended += 1


def _received(end: socket.socket) -> bytes:
    try:
        return end.recv(65536)
    except OSError:
        return b""


def _reset(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    # A thread that waits in recv() keeps a closed socket alive: wake it first, with no FIN sent.
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RD)
    end.close()


def _end(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
