"""The quick start, followed by hand: a real server, a real shell and real time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.docs import shell
from tests.docs.pages import ROOT, Block, blocks
from tests.servers import free_port, missing

QUICKSTART = ROOT / "docs" / "quickstart.md"
#: Seconds that the server may take to start before the test gives up.
PATIENCE = 30.0


def test_the_first_session_of_the_quick_start_can_be_repeated(tmp_path: Path) -> None:
    if shutil.which("curl") is None or shutil.which("bash") is None:
        missing("curl")
    app, *sessions = first_section()
    with served(app, tmp_path) as port:
        for session in sessions:
            for command, shown in shell.commands(session.text):
                printed = run(command.replace("localhost:5000", f"127.0.0.1:{port}"))
                assert shell.shows(printed, shown), f"{session}: $ {command}\nprints\n{printed}"


def first_section() -> list[Block]:
    """Return the page's first app and the sessions with it, up to the next app."""
    app, *rest = blocks(QUICKSTART, "python", "console")
    languages = [block.language for block in rest]
    return [app, *rest[: languages.index("python")]]


@contextmanager
def served(app: Block, folder: Path) -> Iterator[int]:
    """Save an app as app.py and serve it with ``flask run``; yield its port."""
    (folder / "app.py").write_text(app.text)
    port = free_port()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FLASK_")}
    server = subprocess.Popen(
        [sys.executable, "-m", "flask", "run", "--port", str(port)],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until_served(port, server)
        yield port
    finally:
        server.terminate()
        server.wait()


def wait_until_served(port: int, server: subprocess.Popen[bytes]) -> None:
    """Wait for the answer 404 for a missing file, which no limit charges."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            urlopen(f"http://127.0.0.1:{port}/static/none")
        except URLError as answer:
            if getattr(answer, "code", None) == 404:
                return
        assert server.poll() is None, "flask run has ended"
        assert time.monotonic() < deadline, "flask run does not answer"
        time.sleep(0.05)


def run(command: str) -> list[str]:
    ended = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    return ended.stdout.splitlines()


@pytest.mark.parametrize(
    ("printed", "agreed"),
    [
        ('{"retryAfterMs": 812}', True),
        ('{"retryAfterMs": 1001}', False),
        ("HTTP/1.1 200 OK", False),
    ],
)
def test_a_wait_may_be_shorter_than_the_page_shows(printed: str, agreed: bool) -> None:
    assert shell.agree(printed, '{"retryAfterMs": 1000}') is agreed
