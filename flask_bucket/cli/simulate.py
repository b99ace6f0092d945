"""``flask bucket simulate``: replays access logs, and reports what limits would have refused."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import click
from flask import Flask
from flask.cli import NoAppException, ScriptInfo

from ..at_once import AtOnce, parse_many
from ..clients import DEFAULT_IPV6_PREFIX
from ..errors import ConfigError
from ..limits import Limit
from .app_replay import AppReplay
from .app_report import AppReport
from .formats import Entry, formats
from .log_facts import Evidence
from .logs import Log, UnreadableLogError, blocks, opened
from .output import Failure, print_json
from .plot import FORMATS, checked_plot, plot
from .replay import judge, judge_together, suggested
from .report import Report
from .routed import RoutedTraffic
from .states import limiters
from .traffic import By, Traffic

#: Logs of this many bytes and more get a progress bar.
_LONG = 20_000_000


@click.command()
@click.argument("logs", nargs=-1, metavar="LOG...")
@click.option("--limit", "texts", multiple=True, help="A limit to try. May be repeated.")
@click.option("--together", is_flag=True, help="Charge all limits as one decision.")
@click.option(
    "--format",
    "log_format",
    type=click.Choice(sorted(formats())),
    help="The format of the logs. By default, it is detected for each log.",
)
@click.option(
    "--by",
    type=click.Choice(["address", "user"]),
    default="address",
    show_default=True,
    help="The key of a client. Limits by user leave out requests without a user. Without "
    "--limit, this replaces key functions that need more than a log.",
)
@click.option(
    "--ipv6-prefix",
    type=click.IntRange(1, 128),
    help="Leading bits of an IPv6 address that make a client. The default is the application's "
    "setting, or 64.",
)
@click.option(
    "--suggest",
    metavar="SHARE",
    help="For each limit's rate, find the smallest burst that refuses no more than this share "
    "of the requests, such as 0.1%.",
)
@click.option("--plot", "picture", metavar="FILE", help=f"Draw a picture: {FORMATS}.")
@click.option(
    "--worst",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="The number of most refused clients to name.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def simulate(
    ctx: click.Context, /, logs: tuple[str, ...], texts: tuple[str, ...], **options: Any
) -> None:
    """Replay access logs, and report what limits would refuse.

    LOG is an access log, plain or gzipped, in any order, or - for standard input. Its format is
    detected: common, combined, JSON and others. Each --limit is judged alone, as if it were the
    only one, unless you pass --together. Without --limit, the limits are those of the application
    (flask --app shop bucket simulate LOG).
    """
    asked = Options(**options)
    if texts:
        _of_limits(logs, _limits(texts), asked)
    else:
        _of_application(logs, _application(ctx), asked)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command."""

    together: bool
    log_format: str | None
    by: By
    ipv6_prefix: int | None
    suggest: str | None
    picture: str | None
    worst: int
    as_json: bool


def _of_limits(logs: Sequence[str], limits: Sequence[Limit], asked: Options) -> None:
    """Simulate limits that were given by hand."""
    share = None if asked.suggest is None else _share(asked.suggest)
    path = None if asked.picture is None else checked_plot(asked.picture)
    if asked.together and (share is not None or path is not None):
        raise Failure("--suggest and --plot judge each limit alone: leave out --together.")
    traffic = Traffic(asked.by, asked.ipv6_prefix or DEFAULT_IPV6_PREFIX)
    read = read_logs(logs, asked.log_format, traffic)
    if not traffic.times:
        raise Failure(_why_nothing(read, traffic.nameless))
    traffic.sort()
    report = _report(traffic, read, limits, share, asked.together, asked.worst)
    if asked.as_json:
        print_json(report.as_data())
    else:
        report.print()
    if path is not None:
        tried = [*limits, *(s.limit for s in report.suggestions or () if s.limit is not None)]
        _draw(path, traffic, tried)


def _application(ctx: click.Context) -> Flask:
    """Return the application whose limits are replayed.

    :raises Failure: if there is none.
    """
    info = ctx.find_object(ScriptInfo)
    try:
        if info is not None:
            return info.load_app()
    except NoAppException:
        pass
    raise Failure(
        'No limit was given. Expected one or more, such as --limit "5/s burst 20", or an '
        "application with limits of its own: flask --app shop bucket simulate LOG."
    )


def _of_application(logs: Sequence[str], app: Flask, asked: Options) -> None:
    """Simulate the limits of an application."""
    if asked.together or asked.suggest is not None or asked.picture is not None:
        raise Failure("--together, --suggest and --plot are for limits that --limit gives.")
    with app.app_context():
        states = limiters()
        traffic = RoutedTraffic(app)
        read = read_logs(logs, asked.log_format, traffic)
        if not len(traffic):
            raise Failure(_why_nothing(read, 0))
        prefix = asked.ipv6_prefix or next(iter(states.values())).config.ipv6_prefix
        replay = AppReplay(states, Evidence(app, asked.by, prefix))
        for request in traffic:
            replay.charge(request)
    report = AppReport(replay, read, traffic.without_request, asked.worst)
    if asked.as_json:
        print_json(report.as_data())
    else:
        report.print()


def _report(
    traffic: Traffic,
    logs: Sequence[Log],
    limits: Sequence[Limit],
    share: Fraction | None,
    together: bool,
    worst: int,
) -> Report:
    if together:
        of_all, *of_each = judge_together(traffic, limits)
        return Report(traffic, logs, of_all, of_each, None, worst)
    judgements = [judge(traffic, limit) for limit in limits]
    suggestions = None
    if share is not None:
        suggestions = [judge(traffic, suggested(traffic, limit, share)) for limit in limits]
    return Report(traffic, logs, None, judgements, suggestions, worst, share)


class TakesEntries(Protocol):
    """Traffic of either kind."""

    def add(self, entries: Iterator[Entry], /) -> None: ...


def read_logs(names: Sequence[str], log_format: str | None, into: TakesEntries) -> list[Log]:
    """Read logs into traffic, and return them with the counts of their lines.

    :raises Failure: if one cannot be read.
    """
    if not names:
        raise Failure("No log was given. Expected the path of an access log, or - for stdin.")
    logs = []
    try:
        for name in names:
            log = Log("standard input" if name == "-" else name, log_format)
            logs.append(log)
            with _lines(name) as lines:
                into.add(log.entries(lines))
    except UnreadableLogError as error:
        raise Failure(str(error)) from None
    return logs


@contextmanager
def _lines(name: str) -> Iterator[Iterator[list[bytes]]]:
    if name != "-":
        with opened(name) as file, _progress(file) as advance:
            yield blocks(name, file, advance)
        return
    if sys.stdin is None:
        raise Failure("Standard input is closed; expected an access log.")
    yield blocks("standard input", sys.stdin.buffer, _nobody_looks)


def _why_nothing(logs: Sequence[Log], nameless: int) -> str:
    where = ", ".join(log.name for log in logs)
    if nameless:
        return f"No request in {where} names a user. Leave out --by user."
    return f"No request in {where}: it is empty."


@contextmanager
def _progress(log: BinaryIO) -> Iterator[Callable[[int], object]]:
    """Show the progress of a long log on a terminal."""
    size = os.fstat(log.fileno()).st_size
    if size < _LONG or not sys.stderr.isatty():
        yield _nobody_looks
        return
    with click.progressbar(
        length=size, label=f"Reading {Path(log.name).name}", file=sys.stderr
    ) as bar:
        yield bar.update


def _nobody_looks(size: int) -> None:
    """Show no progress."""


def _limits(texts: Sequence[str]) -> list[Limit]:
    try:
        found = [limit for text in texts for limit in parse_many(text)]
    except ConfigError as error:
        raise Failure(f"--limit: {error}") from None
    for limit in found:
        if isinstance(limit, AtOnce):
            raise Failure(
                f"--limit: a log cannot tell what {limit} would refuse, because it says when "
                "requests came, but not how long they ran. Leave it out."
            )
    return found


def _share(text: str) -> Fraction:
    """Read a share such as ``0.1%``. The sign is required: 0.1 could be 0.1% or 10%."""
    number, sign, rest = text.strip().partition("%")
    try:
        share = Fraction(number) / 100
    except (ValueError, ZeroDivisionError):
        share = Fraction(-1)
    if not sign or rest or not 0 <= share < 1:
        raise Failure(
            f"--suggest: {text!r} is not a share. Expected 0% to below 100%, such as 0.1%."
        )
    return share


def _draw(path: Path, traffic: Traffic, limits: Sequence[Limit]) -> None:
    try:
        plot(path, traffic, limits)
    except OSError as error:
        raise Failure(f"{path} cannot be written: {error.strerror or error}.") from None
    click.echo(f"Drew {path}.", err=True)
