"""Words of the commands: logs to write, applications to look at, commands to run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from flask import Flask

from flask_bucket import Limiter
from flask_bucket.cli import bucket, server_checks
from tests.servers import REQUIRED, Server

#: A log of 1,074 invented requests.
ACCESS_LOG = Path(__file__).parents[1] / "data" / "access.log"
#: A log of 9,999 real ones, which is not part of the project. CI has it, and requires it.
LARGE_LOG = Path(__file__).parents[3] / "shared" / "data" / "access.log"


@dataclass(frozen=True, slots=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Said]


def line(
    client: str = "203.0.113.7",
    time: str = "17/May/2015:10:05:03 +0000",
    *,
    user: str = "-",
    rest: str = '"GET / HTTP/1.1" 200 5',
) -> str:
    """Return a line of a log in the common format."""
    return f"{client} - {user} [{time}] {rest}"


@pytest.fixture(autouse=True)
def busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``doctor`` find nothing in a round trip that takes long because this machine is busy."""
    monkeypatch.setattr(server_checks, "LONG_ROUND_TRIP", 0.5)


@pytest.fixture
def run() -> Run:
    """Run ``flask bucket ...`` without an application."""

    def run(*arguments: object, stdin: bytes | None = None) -> Said:
        result = CliRunner().invoke(bucket, [str(a) for a in arguments], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Said(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def write_log(tmp_path: Path) -> Callable[..., Path]:
    def write(*lines: str, name: str = "access.log") -> Path:
        path = tmp_path / name
        path.write_text("".join(text + "\n" for text in lines))
        return path

    return write


@pytest.fixture
def access_log() -> Path:
    """A log in the combined format."""
    return ACCESS_LOG


def _logs() -> list[Path]:
    return (
        [ACCESS_LOG, LARGE_LOG] if LARGE_LOG.is_file() or "access.log" in REQUIRED else [ACCESS_LOG]
    )


@pytest.fixture(params=_logs(), ids=lambda path: "large" if path == LARGE_LOG else "small")
def each_log(request: pytest.FixtureRequest) -> Path:
    """The log of the tests, and the large one where there is one."""
    path = request.param
    assert isinstance(path, Path)
    return path


def run_in(app: Flask) -> Run:
    """Run ``flask bucket ...`` with an application."""

    def run(*arguments: object, stdin: str | None = None) -> Said:
        runner = app.test_cli_runner()
        result = runner.invoke(bucket, [str(a) for a in arguments], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Said(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def app(valkey: Server) -> Iterator[Flask]:
    """An application with limits of each kind, on a real server."""
    app = Flask(__name__)
    app.config.update(BUCKET_REDIS_URL=valkey.url, BUCKET_TIMEOUT=5)
    limiter = Limiter(app)

    @app.get("/search")
    @limiter.limit("5/minute")
    def search() -> str:
        return "found"

    @app.post("/login")
    @limiter.limit("2/hour", cost=2, deduct_when=lambda response: response.status_code == 401)
    def login() -> str:
        return "welcome"

    @app.get("/free")
    def free() -> str:
        return "free"

    @app.get("/healthz")
    @limiter.exempt
    def healthz() -> str:
        return "ok"

    yield app
    app.extensions["flask_bucket"]["bucket"].store.close()


def get(app: Flask, path: str, times: int = 1, address: str = "203.0.113.7") -> list[int]:
    """Ask an application, and return the statuses of what it answers."""
    client = app.test_client()
    return [
        client.get(path, environ_base={"REMOTE_ADDR": address}).status_code for _ in range(times)
    ]


def healthy(valkey: Server, **config: Any) -> Flask:
    app = Flask(__name__, static_folder=None)
    app.config.update({"BUCKET_REDIS_URL": valkey.url, "BUCKET_TIMEOUT": 1, **config})
    Limiter(app, application_limits="5/second burst 20")
    return app


def codes(said: Said, *levels: str) -> list[str]:
    levels = levels or ("warning", "error")
    return [f["code"] for f in said.data["findings"] if f["level"] in levels]


def examine(app: Flask, *arguments: object) -> Said:
    return run_in(app)("doctor", "--json", *arguments)


def the_finding(app: Flask, code: str) -> dict[str, Any]:
    """Return the only finding with a code."""
    (finding,) = (f for f in examine(app).data["findings"] if f["code"] == code)
    assert isinstance(finding, dict)
    return finding
