"""Faults of the workers and the server while the clients call."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from random import Random
from threading import Event

from tests.histories.history import microseconds
from tests.histories.site import Site

#: Seconds for which a worker stands still.
STOPPED = 0.3

#: Seconds for which the server is frozen: long enough for all workers to call it.
FROZEN = 0.1


class Faults:
    """Faults of all kinds, in a random order, and when the server was dead."""

    def __init__(self, site: Site, seed: int) -> None:
        self._site, self._random = site, Random(seed)
        self.count: Counter[str] = Counter()
        self.resets: list[int] = []

    def inflict(self, every: float, over: Event) -> None:
        """Inflict each kind once in each round, until it is over."""
        kinds = self._kinds()
        while True:
            for name in self._random.sample([*kinds], len(kinds)):
                if over.wait(every):
                    return
                kinds[name]()
                self.count[name] += 1

    def _kinds(self) -> dict[str, Callable[[], None]]:
        return {
            "SIGKILL": self._kill_a_worker,
            "SIGSTOP": self._stop_a_worker,
            "SCRIPT FLUSH": self._flush_the_scripts,
            "CLIENT KILL": self._kill_the_connections,
            "lost replies": self._lose_the_replies,
            "restart": self._restart_the_server,
        }

    def _kill_a_worker(self) -> None:
        if workers := self._site.workers():
            os.kill(self._random.choice(workers), signal.SIGKILL)

    def _stop_a_worker(self) -> None:
        if workers := self._site.workers():
            worker = self._random.choice(workers)
            os.kill(worker, signal.SIGSTOP)
            time.sleep(STOPPED)
            os.kill(worker, signal.SIGCONT)

    def _flush_the_scripts(self) -> None:
        with self._site.server.client() as client:
            client.script_flush()

    def _kill_the_connections(self) -> None:
        with self._site.server.client() as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def _lose_the_replies(self) -> None:
        """Let the server decide calls, and lose its replies.

        While it is frozen, calls come in, and then the command to kill their connections. It
        reads all of them before it replies.
        """
        with closing(socket.create_connection(("127.0.0.1", self._site.server.port))) as killer:
            killer.sendall(b"PING\r\n")
            assert killer.recv(100) == b"+PONG\r\n"
            self._site.server.freeze()
            time.sleep(FROZEN)
            killer.sendall(b"CLIENT KILL TYPE normal SKIPME yes\r\n")
            self._site.server.thaw()
            assert killer.recv(100).startswith(b":")

    def _restart_the_server(self) -> None:
        self._site.server.kill()
        # The old one is gone, and the new one has not begun. It keeps nothing on disk.
        self.resets.append(microseconds())
        self._site.server.start()
