"""``flask bucket doctor``: checks with stable codes, and advice for each finding."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace

import click
from flask import current_app
from flask.cli import with_appcontext

from ..enforcing import Enforcer
from ..stores.redis.inspection import RedisServer
from .app_checks import (
    leftover_checks,
    proxy_checks,
    setting_checks,
    workers_in,
)
from .at_once_checks import at_once_checks, timeout_in
from .ban_checks import ban_checks
from .cors_checks import cors_checks
from .findings import Finding
from .layout import Table
from .lease_checks import lease_checks
from .output import counted, print_json, print_table
from .rule_checks import hook_checks, limit_checks, method_checks, route_checks
from .server_checks import server_checks
from .states import limiters

_STYLES = {"ok": "green", "note": "", "warning": "yellow", "error": "bold red"}


@click.command()
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="The number of processes that serve the application. The default comes from "
    "WEB_CONCURRENCY or GUNICORN_CMD_ARGS.",
)
@click.option("--behind-proxy", is_flag=True, help="The application is behind a reverse proxy.")
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_appcontext
def doctor(workers: int | None, behind_proxy: bool, strict: bool, as_json: bool) -> None:
    """Check limits, settings and server, and advise what to do.

    Exits with 1 if there are errors.
    """
    states = limiters()
    found = list(findings(states, workers or workers_in(os.environ), behind_proxy))
    found.sort(key=lambda finding: finding.code)
    errors = sum(finding.level == "error" for finding in found)
    warnings = sum(finding.level == "warning" for finding in found)
    if as_json:
        data = [finding.as_data() for finding in found]
        print_json({"findings": data, "errors": errors, "warnings": warnings})
    else:
        _print(found, several=len(states) > 1)
        click.echo(f"\n{counted(errors, 'error')}, {counted(warnings, 'warning')}.")
    if errors or (strict and warnings):
        raise click.exceptions.Exit(1)


def findings(states: Mapping[str, Enforcer], workers: int, behind_proxy: bool) -> Iterator[Finding]:
    """Run all checks, those of the server first: without it, little else matters."""
    servers = {name: RedisServer.behind(state.store) for name, state in states.items()}
    for name, state in states.items():
        server = servers[name]
        if server is not None:
            yield from _about(name, server_checks(state, server))
        yield from _about(name, setting_checks(state, server, workers))
        yield from _about(name, limit_checks(state))
        yield from _about(name, lease_checks(state))
        yield from _about(name, at_once_checks(state, timeout_in(os.environ)))
        yield from _about(name, ban_checks(state))
        yield from _about(name, method_checks(state))
        yield from _about(name, hook_checks(state))
        yield from _about(name, cors_checks(state))
    yield from leftover_checks(current_app)
    yield from proxy_checks(current_app, servers, behind_proxy)
    yield from route_checks(states)


def _about(limiter: str, found: Iterator[Finding]) -> Iterator[Finding]:
    for finding in found:
        yield replace(finding, limiter=limiter)


def _print(found: list[Finding], *, several: bool) -> None:
    rows = []
    for finding in found:
        about = f"[{finding.limiter}] " if several and finding.limiter else ""
        what = f"{about}{finding.what} {finding.advice}".rstrip()
        rows.append((finding.code, finding.level, what))
    styles = [_STYLES[finding.level] for finding in found]
    print_table(Table("", ("code", "level", "finding"), rows, styles=styles))
