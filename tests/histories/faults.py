"""What is done to workers and server while the clients call."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from threading import Event

from tests.histories.history import microseconds
from tests.histories.site import Site

#: Seconds for which a worker stands still.
STOPPED = 0.3


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

    def _restart_the_server(self) -> None:
        self._site.server.kill()
        # The old one is gone, and the new one has not begun. It keeps nothing on disk.
        self.resets.append(microseconds())
        self._site.server.start()
