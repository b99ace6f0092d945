"""Gunicorn's settings for the example: four workers that share one server.

If FLASK_BUCKET_REDIS_URL is not set, gunicorn's master starts an embedded Valkey, which runs as
long as the master. The workers find its URL in that variable. EXAMPLE_BIND is the address to listen
at (127.0.0.1:8000), and WEB_CONCURRENCY is the number of workers (4).
"""
# ruff: noqa: N999 (gunicorn's customary name for this file)

from __future__ import annotations

import os
import socket
import subprocess
import sys
import traceback
from contextlib import suppress
from typing import Any

from flask_bucket import embedded

wsgi_app = "example_app.wsgi:app"
bind = os.environ.get("EXAMPLE_BIND") or "127.0.0.1:8000"
workers = int(os.environ.get("WEB_CONCURRENCY") or 4)
# Browsers open connections in advance. Without threads, each of them would block a worker.
worker_class = "gthread"
threads = 4
# gunicornc is not needed here, and its socket would remain after a SIGKILL.
control_socket_disable = True

if workers < 1:
    sys.exit(f"WEB_CONCURRENCY={workers}: expected the number of workers, at least 1.")


def on_starting(server: Any) -> None:
    """Report a setting that cannot work in one line, before each worker reports it."""
    if not server.master_pid and "LISTEN_FDS" not in os.environ:  # else they are inherited
        for address in server.cfg.address:
            if isinstance(address, tuple):
                _refuse_unless_free(*address)
    if server.cfg.preload_app and not os.environ.get(embedded.REDIS_URL):
        sys.exit(
            f"--preload makes the app before the embedded Valkey runs. Leave it out, or set "
            f"{embedded.REDIS_URL}."
        )
    _refuse_wrong_settings()


def when_ready(server: Any) -> None:
    """Start Valkey after gunicorn itself can serve."""
    if os.environ.get(embedded.REDIS_URL):
        return
    try:
        valkey = embedded.start(watched=os.getpid())
    except embedded.NotStartedError as error:
        sys.exit(str(error))
    server.log.info("Embedded Valkey at: %s", valkey.url)
    # Keep it on the arbiter, because a reload (SIGHUP) runs this file again. Do not keep it in the
    # master's environment: a master started by SIGUSR2 would find it, and not start its own Valkey.
    server.valkey = valkey


def post_fork(server: Any, worker: Any) -> None:
    """Pass the URL to a worker, and close its copy of the pipe: only the master may hold it."""
    if valkey := getattr(server, "valkey", None):
        os.environ[embedded.REDIS_URL] = valkey.url
        valkey.keeper.stdin.close()


def on_exit(server: Any) -> None:
    """Wait until Valkey has ended. Otherwise it would end a moment after the master."""
    if valkey := getattr(server, "valkey", None):
        valkey.keeper.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            valkey.keeper.wait(timeout=10)


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
    """Make the app once, in a separate process.

    If the master loaded the app's modules, all workers would inherit them, and a reload would serve
    the old code.
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

    if not os.environ.get(embedded.REDIS_URL):
        os.environ[embedded.REDIS_URL] = "unix:///not-started-yet"  # as in a worker; never opened
    try:
        create_app()
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return False
    return True
