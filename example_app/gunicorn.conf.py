"""How gunicorn serves the example: four workers that share one server.

Unless FLASK_BUCKET_REDIS_URL names a server, an embedded Valkey is started for as long as
gunicorn's master runs, and the workers find its URL in that variable. EXAMPLE_BIND is the address
to listen at (127.0.0.1:8000), WEB_CONCURRENCY the number of workers (4).
"""
# ruff: noqa: N999 (gunicorn's customary name for this file)

from __future__ import annotations

import os
import socket
import subprocess
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

REDIS_URL = "FLASK_BUCKET_REDIS_URL"

wsgi_app = "example_app.wsgi:app"
bind = os.environ.get("EXAMPLE_BIND") or "127.0.0.1:8000"
workers = int(os.environ.get("WEB_CONCURRENCY") or 4)
# Threads, because browsers open connections ahead of need: each would block a worker without.
worker_class = "gthread"
threads = 4
# gunicornc is not needed here, and its socket would stay behind after a SIGKILL.
control_socket_disable = True

if workers < 1:
    sys.exit(f"WEB_CONCURRENCY={workers}: expected the number of workers, at least 1.")


def on_starting(server: Any) -> None:
    """Refuse what cannot work in one line, before there are workers that each complain."""
    if not server.master_pid and "LISTEN_FDS" not in os.environ:  # else the sockets are handed in
        for address in server.cfg.address:
            if isinstance(address, tuple):
                _refuse_unless_free(*address)
    if server.cfg.preload_app and not os.environ.get(REDIS_URL):
        sys.exit(
            f"--preload makes the app before the embedded Valkey runs. Leave it out, or set "
            f"{REDIS_URL}."
        )
    _refuse_wrong_settings()


def when_ready(server: Any) -> None:
    """Start Valkey, once it is sure that gunicorn itself can serve."""
    if os.environ.get(REDIS_URL):
        return
    keeper = subprocess.Popen(
        # -P: nothing in this folder can pass for a module that it imports.
        [sys.executable, "-P", str(Path(__file__).with_name("embedded_valkey.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # Out of the terminal's reach: after a Ctrl-C, workers finish their requests with it.
        start_new_session=True,
    )
    assert keeper.stdout is not None
    with keeper.stdout:
        url = keeper.stdout.readline().decode().strip()
    if not url.startswith("unix://"):
        sys.exit(url or "The embedded Valkey did not start.")
    server.log.info("Embedded Valkey at: %s", url)
    # On the arbiter, since a reload (SIGHUP) runs this file anew. Not in the master's
    # environment: there, a master started by SIGUSR2 would find it and not start its own.
    server.valkey, server.valkey_url = keeper, url


def post_fork(server: Any, worker: Any) -> None:
    """Hand the URL to a worker, and take away the pipe: the master alone keeps Valkey up."""
    if keeper := getattr(server, "valkey", None):
        os.environ[REDIS_URL] = server.valkey_url
        keeper.stdin.close()


def on_exit(server: Any) -> None:
    """Do not end before Valkey has. Without this it would end too, but a moment later."""
    if keeper := getattr(server, "valkey", None):
        keeper.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            keeper.wait(timeout=10)


def _refuse_unless_free(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gunicorn does
            probe.bind((host, port))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error).rstrip(".")
        sys.exit(
            f"Cannot listen at {host}:{port}: {reason}. "
            "Choose another address with EXAMPLE_BIND=host:port."
        )


def _refuse_wrong_settings() -> None:
    """Make the app once, in a process of its own.

    In the master, the app's modules would be loaded and handed down to all workers: a reload
    would go on serving the old code.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if _settings_are_right() else 1
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)
    if os.waitpid(child, 0)[1]:
        sys.exit(1)


def _settings_are_right() -> bool:
    from example_app import create_app
    from flask_bucket import ConfigError

    if not os.environ.get(REDIS_URL):
        os.environ[REDIS_URL] = "unix:///not-started-yet"  # as a worker finds it; never opened
    try:
        create_app()
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return False
    return True
