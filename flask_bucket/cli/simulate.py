"""``flask bucket simulate``: what limits would have done to the traffic in access logs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO, Protocol

import click

from ..errors import ConfigError
from ..limits import Limit
from .formats import Entry, formats
from .logs import Log, UnreadableLogError, blocks, opened
from .output import Failure, print_json
from .plot import FORMATS, checked_plot, plot
from .replay import judge, judge_together, suggested
from .report import Report
from .traffic import By, Traffic

#: Bytes from which a log takes long enough for a progress bar.
_LONG = 20_000_000


@click.command()
@click.argument("logs", nargs=-1, metavar="LOG...")
@click.option("--limit", "texts", multiple=True, help="A limit to try; may be given repeatedly.")
@click.option("--together", is_flag=True, help="Charge all limits as one decision.")
@click.option(
    "--format",
    "log_format",
    type=click.Choice(sorted(formats())),
    help="The format of the logs; by default it is found for each log.",
)
@click.option(
    "--by",
    type=click.Choice(["address", "user"]),
    default="address",
    show_default=True,
    help="What a client is. Requests without a user are left out of limits by user.",
)
@click.option(
    "--ipv6-prefix",
    type=click.IntRange(1, 128),
    default=64,
    show_default=True,
    help="Leading bits of an IPv6 address that make a client.",
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
    help="How many of the clients with the most refusals to name.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def simulate(
    logs: tuple[str, ...],
    texts: tuple[str, ...],
    together: bool,
    log_format: str | None,
    by: By,
    ipv6_prefix: int,
    suggest: str | None,
    picture: str | None,
    worst: int,
    as_json: bool,
) -> None:
    """Replay access logs through limits, and report what would have been refused.

    LOG is an access log, plain or gzipped, in any order, or - for standard input. Its format is
    found: common, combined, JSON and others. Each limit is judged on its own, as if it were the
    only one, unless --together is given. Needs no application.
    """
    limits = _limits(texts)
    share = None if suggest is None else _share(suggest)
    path = None if picture is None else checked_plot(picture)
    if together and (share is not None or path is not None):
        raise Failure("--suggest and --plot look at each limit on its own: leave out --together.")
    traffic = Traffic(by, ipv6_prefix)
    read = read_logs(logs, log_format, traffic)
    if not traffic.times:
        raise Failure(_why_nothing(read, traffic))
    traffic.sort()
    report = _report(traffic, read, limits, share, together, worst)
    if as_json:
        print_json(report.as_data())
    else:
        report.print()
    if path is not None:
        tried = [*limits, *(s.limit for s in report.suggestions or () if s.limit is not None)]
        _draw(path, traffic, tried)


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
    return Report(traffic, logs, None, judgements, suggestions, worst)


class TakesEntries(Protocol):
    """What requests are read into."""

    def add(self, entries: Iterator[Entry], /) -> None: ...


def read_logs(names: Sequence[str], log_format: str | None, into: TakesEntries) -> list[Log]:
    """Read logs, and return what their lines were.

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


def _why_nothing(logs: Sequence[Log], traffic: Traffic) -> str:
    where = ", ".join(log.name for log in logs)
    if traffic.nameless:
        return f"No request in {where} names a user: leave out --by user."
    return f"No request in {where}: it is empty."


@contextmanager
def _progress(log: BinaryIO) -> Iterator[Callable[[int], object]]:
    """Show how far a long log is read, if somebody is looking."""
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
    if not texts:
        raise Failure('No limit was given. Expected one or more, such as --limit "5/s burst 20".')
    try:
        return [limit for text in texts for limit in Limit.parse_many(text)]
    except ConfigError as error:
        raise Failure(f"--limit: {error}") from None


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
