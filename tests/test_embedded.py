"""``python -m flask_bucket.embedded``: a command with a server of its own, and nothing left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

MODULE = [sys.executable, "-m", "flask_bucket.embedded"]

APP = """
from flask import Flask
from flask_bucket import Limiter

app = Flask(__name__)
limiter = Limiter(app, default_limits=["5/day"])
app.get("/")(lambda: "fine")
"""


def eventually(check: Callable[[], bool], seconds: float = 20) -> bool:
    """Return whether something becomes true."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if check():
            return True
        time.sleep(0.05)  # until another process is there, or gone
    return False


def processes_of(folder: Path) -> list[int]:
    """Return the processes that have a folder in their command or environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if str(folder).encode() in text and state != "Z":
                found.append(int(entry.name))
    return found


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which every process, and all that it leaves behind, can be found."""
    (tmp_path / "shop.py").write_text(APP)
    environment = {k: v for k, v in os.environ.items() if k != "FLASK_BUCKET_REDIS_URL"}
    return environment | {"TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}


def run(environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MODULE, *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def left_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith("bucket-")]


def test_a_command_finds_a_server_that_ends_with_it(
    environment: dict[str, str], tmp_path: Path
) -> None:
    code = (
        "import os, redis; url = os.environ['FLASK_BUCKET_REDIS_URL']; "
        "print(url.partition(':')[0], redis.Redis.from_url(url).ping())"
    )
    done = run(environment, sys.executable, "-c", code)
    assert (done.returncode, done.stdout) == (0, "unix True\n")
    assert eventually(lambda: not processes_of(tmp_path))
    assert left_in(tmp_path) == []


def test_the_address_of_the_server_is_named_for_other_commands(
    environment: dict[str, str],
) -> None:
    code = "import os; print(os.environ['FLASK_BUCKET_REDIS_URL'])"
    done = run(environment, sys.executable, "-c", code)
    assert done.stderr == f"Embedded Valkey at: {done.stdout}"


def test_the_exit_status_is_the_command_s(environment: dict[str, str]) -> None:
    assert run(environment, "--", sys.executable, "-c", "raise SystemExit(7)").returncode == 7


@pytest.mark.parametrize(
    ("command", "status", "message"),
    [
        ([], 2, "Expected a command"),
        (["--help"], 2, "Expected a command"),
        (["no-such-command"], 127, "no-such-command cannot be run: no such program."),
    ],
)
def test_a_wrong_command_is_one_clear_line(
    environment: dict[str, str], tmp_path: Path, command: list[str], status: int, message: str
) -> None:
    done = run(environment, *command)
    assert done.returncode == status
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1
    assert eventually(lambda: not processes_of(tmp_path))


def test_a_server_that_is_named_already_is_refused(environment: dict[str, str]) -> None:
    environment["FLASK_BUCKET_REDIS_URL"] = "redis://localhost:6379/0"
    done = run(environment, "true")
    assert done.returncode == 2
    assert "names a server already" in done.stderr


class Served:
    """gunicorn with two workers, and an embedded server."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.folder = folder
        self.output = (folder / "output").open("w+")
        command = ["gunicorn", "--preload", "--no-control-socket", "-w", "2"]
        self.process = subprocess.Popen(
            [*MODULE, sys.executable, "-m", *command, "-b", f"127.0.0.1:{self.port}", "shop:app"],
            env=environment,
            cwd=folder,
            stdout=self.output,
            stderr=subprocess.STDOUT,
        )
        assert eventually(lambda: self.status() is not None), self.said()

    def status(self) -> int | None:
        """Return the status of a request; None if nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=30) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None

    def said(self) -> str:
        self.output.seek(0)
        return self.output.read()

    def valkey(self) -> int:
        """Return the server's process."""
        (pid,) = (
            pid
            for pid in processes_of(self.folder)
            if b"valkey-server" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
        )
        return pid

    def keeper(self) -> int:
        """Return the process that keeps the server: its parent."""
        stat = Path(f"/proc/{self.valkey()}/stat").read_text()
        return int(stat.rpartition(")")[2].split()[1])


@pytest.fixture
def served(environment: dict[str, str], tmp_path: Path) -> Iterator[Served]:
    served = Served(environment, tmp_path)
    yield served
    served.process.terminate()  # if it were killed, its workers would look for it every 15 s only
    try:
        served.process.wait(20)
    finally:
        served.process.kill()
        served.output.close()
    assert eventually(lambda: not processes_of(tmp_path), 30)


linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")


@linux
def test_all_workers_share_the_server(served: Served) -> None:
    statuses = [served.status() for _ in range(7)]
    assert statuses.count(200) == 4, "the fifth was the one that found the workers up"
    assert statuses.count(429) == 3


@linux
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_however_gunicorn_ends(served: Served, signum: int) -> None:
    served.process.send_signal(signum)
    served.process.wait(30)
    # Without a request, a worker looks for its master every 15 s only.
    assert eventually(lambda: served.status() is None)
    assert eventually(lambda: not processes_of(served.folder), 30)
    assert left_in(served.folder) == []


@linux
def test_gunicorn_ends_with_clear_words_if_the_server_is_killed(served: Served) -> None:
    os.kill(served.valkey(), signal.SIGKILL)
    served.process.wait(30)
    assert eventually(lambda: not processes_of(served.folder), 30)
    assert f"The embedded Valkey has ended by itself, so process {served.process.pid}" in (
        served.said()
    )
    assert left_in(served.folder) == []


@linux
def test_gunicorn_serves_on_if_the_keeper_is_killed_and_nothing_is_left_in_the_end(
    served: Served,
) -> None:
    os.kill(served.keeper(), signal.SIGKILL)
    statuses = [served.status() for _ in range(7)]
    assert (statuses.count(200), statuses.count(429)) == (4, 3), "the buckets are still there"
    served.process.send_signal(signal.SIGKILL)
    served.process.wait(30)
    assert eventually(lambda: served.status() is None)
    assert eventually(lambda: not processes_of(served.folder), 30)
    assert left_in(served.folder) == []


@linux
def test_the_heir_of_a_killed_keeper_ends_a_server_that_does_not_stop(served: Served) -> None:
    keeper, valkey = served.keeper(), served.valkey()
    os.kill(keeper, signal.SIGKILL)
    os.kill(valkey, signal.SIGSTOP)
    served.process.send_signal(signal.SIGTERM)
    served.process.wait(30)
    assert eventually(lambda: not processes_of(served.folder), 30)
    assert left_in(served.folder) == []


@linux
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_gunicorn_ends_with_clear_words_if_keeper_and_server_are_killed(
    served: Served, signum: int
) -> None:
    keeper, valkey = served.keeper(), served.valkey()
    os.kill(keeper, signal.SIGKILL)
    os.kill(valkey, signum)
    served.process.wait(30)
    assert eventually(lambda: not processes_of(served.folder), 30)
    assert f"so process {served.process.pid} is ended" in served.said()
    assert left_in(served.folder) == []


@linux
def test_a_keeper_that_is_asked_to_end_leaves_nothing_to_its_heir(served: Served) -> None:
    os.kill(served.keeper(), signal.SIGTERM)
    assert eventually(lambda: left_in(served.folder) == [])
    served.process.send_signal(signal.SIGTERM)
    served.process.wait(30)
    assert eventually(lambda: not processes_of(served.folder), 30)
    assert "has ended by itself" not in served.said()
