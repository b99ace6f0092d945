"""``python -m flask_bucket.embedded COMMAND``: a command with a server of its own."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import NoReturn

from . import REDIS_URL, NotStartedError, start

USAGE = "Expected a command, such as: python -m flask_bucket.embedded gunicorn -w 4 shop:app"


def main(arguments: Sequence[str]) -> NoReturn:
    """Start a server and become the command.

    The command takes the place of this process, and inherits its end of the server's pipe. So there
    is no wrapper process: killing one could leave the command or the server running.
    """
    command = [*arguments[arguments[:1] == ["--"] :]]
    if not command or command[0].startswith("-"):
        _fail(USAGE, 2)
    if os.environ.get(REDIS_URL):
        _fail(f"{REDIS_URL} names a server already. Unset it, or start the command alone.", 2)
    if shutil.which(command[0]) is None:
        _fail(f"{command[0]} cannot be run: no such program.", 127)
    try:
        server = start(watched=os.getpid())
    except NotStartedError as error:
        _fail(str(error), 1)
    assert server.keeper.stdin is not None
    os.set_inheritable(server.keeper.stdin.fileno(), True)
    os.environ[REDIS_URL] = server.url
    # Whoever wants to see the buckets from elsewhere, as flask bucket show does, needs the address.
    sys.stderr.write(f"Embedded Valkey at: {server.url}\n")
    sys.stderr.flush()
    try:
        os.execvp(command[0], command)  # the command is the user's
    except OSError as error:
        _fail(f"{command[0]} cannot be run: {error.strerror}.", 127)


def _fail(message: str, status: int) -> NoReturn:
    sys.stderr.write(f"{message}\n")
    sys.exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
