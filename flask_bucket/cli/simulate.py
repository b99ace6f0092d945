"""``flask bucket simulate``: what limits would have done to the traffic in access logs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

import click

from ..errors import ConfigError
from ..limits import SECOND, Limit
from .logs import By, Traffic, UnreadableLogError, blocks, opened
from .output import Failure, Table, counted, duration, print_json, print_table
from .plot import checked_plot, plot
from .replay import Judgement, judge, suggested

#: Bytes from which a log takes long enough for a progress bar.
_LONG = 20_000_000


@click.command()
@click.argument("logs", nargs=-1, metavar="LOG...")
@click.option("--limit", "texts", multiple=True, help="A limit to try; may be given repeatedly.")
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
@click.option("--plot", "picture", metavar="FILE", help="Draw a picture: .png, .svg or .pdf.")
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
    by: By,
    ipv6_prefix: int,
    suggest: str | None,
    picture: str | None,
    worst: int,
    as_json: bool,
) -> None:
    """Replay access logs through limits, and report what would have been refused.

    LOG is a file in the common or the combined format, plain or gzipped, in any order, or - for
    standard input. Each limit is judged on its own, as if it were the only one. Needs no
    application.
    """
    limits = _limits(texts)
    share = None if suggest is None else _share(suggest)
    path = None if picture is None else checked_plot(picture)
    traffic = read(logs, Traffic(by, ipv6_prefix))
    judgements = [judge(traffic, limit) for limit in limits]
    suggestions = None
    if share is not None:
        suggestions = [judge(traffic, suggested(traffic, limit, share)) for limit in limits]
    if as_json:
        print_json(as_data(traffic, judgements, suggestions, worst))
    else:
        _print(traffic, judgements, suggestions, worst)
    if path is not None:
        _draw(path, traffic, judgements if suggestions is None else [*judgements, *suggestions])


def read(logs: Sequence[str], traffic: Traffic) -> Traffic:
    """Read logs into sorted traffic.

    :raises Failure: if one cannot be read, or there is no request in all of them.
    """
    if not logs:
        raise Failure("No log was given. Expected the path of an access log, or - for stdin.")
    try:
        for name in logs:
            if name == "-":
                _read_stdin(traffic)
                continue
            with opened(name) as log, _progress(log) as advance:
                traffic.add(blocks(name, log, advance))
    except UnreadableLogError as error:
        raise Failure(str(error)) from None
    if not traffic.times:
        raise Failure(_why_nothing(logs, traffic))
    traffic.sort()
    return traffic


def _read_stdin(traffic: Traffic) -> None:
    if sys.stdin is None:
        raise Failure("Standard input is closed; expected an access log.")
    traffic.add(blocks("standard input", sys.stdin.buffer, _nobody_looks))


def _why_nothing(logs: Sequence[str], traffic: Traffic) -> str:
    where = ", ".join("standard input" if log == "-" else log for log in logs)
    if traffic.nameless:
        return f"No request in {where} names a user: leave out --by user."
    if traffic.malformed:
        lines = counted(traffic.malformed, "line is", "lines are")
        return f"No request in {where}: {lines} in neither the common nor the combined format."
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
    """Read a share: ``0.1%`` or ``0.001``."""
    number = text.strip()
    percent = number.endswith("%")
    try:
        share = Fraction(number.removesuffix("%")) / (100 if percent else 1)
    except (ValueError, ZeroDivisionError):
        share = Fraction(-1)
    if not 0 <= share < 1:
        raise Failure(f"--suggest: {text!r} is not a share. Expected 0 to below 100%, as in 0.1%.")
    return share


def as_data(
    traffic: Traffic,
    judgements: Sequence[Judgement],
    suggestions: Sequence[Judgement] | None,
    worst: int,
) -> dict[str, Any]:
    """Return the report for programs; a suggestion stands with the limit whose rate it keeps."""
    limits = [_judgement_data(judgement, worst) for judgement in judgements]
    for limit, suggestion in zip(limits, suggestions or (), strict=False):
        limit["suggestion"] = _judgement_data(suggestion, worst)
    return {
        "requests": traffic.requests,
        "clients": len(traffic.times),
        "malformed": traffic.malformed,
        "limits": limits,
    }


def _judgement_data(judgement: Judgement, worst: int) -> dict[str, Any]:
    return {
        "limit": str(judgement.limit),
        "refused": judgement.refused,
        "refused_clients": len(judgement.refused_by_client),
        "worst": [
            {"client": client, "refused": refused} for client, refused in judgement.worst(worst)
        ],
    }


def _print(
    traffic: Traffic,
    judgements: Sequence[Judgement],
    suggestions: Sequence[Judgement] | None,
    worst: int,
) -> None:
    clients = counted(len(traffic.times), "client")
    summary = f"{counted(traffic.requests, 'request')} from {clients}"
    if traffic.malformed:
        summary += f"; {counted(traffic.malformed, 'malformed line')} left out"
    if traffic.nameless:
        summary += f"; {counted(traffic.nameless, 'request')} without a user left out"
    click.echo(summary + ".\n")
    print_table(_summary("", judgements))
    if suggestions is not None:
        click.echo()
        title = "The smallest bursts that refuse no more than was asked for:"
        print_table(_summary(title, suggestions))
    for judgement in judgements:
        if worst and judgement.refused:
            click.echo()
            print_table(_worst(traffic, judgement, worst))


def _summary(title: str, judgements: Sequence[Judgement]) -> Table:
    headings = ("limit", "refused", "share", "clients affected", "longest wait")
    rows = [
        (
            str(j.limit),
            f"{j.refused:,}",
            percentage(j.share),
            _affected(j),
            duration(j.longest_wait / SECOND) if j.refused else "-",
        )
        for j in judgements
    ]
    return Table(title, headings, rows, frozenset(headings[1:]))


def _affected(judgement: Judgement) -> str:
    affected = len(judgement.refused_by_client)
    return f"{affected:,} ({percentage(Fraction(affected, judgement.clients))})"


def _worst(traffic: Traffic, judgement: Judgement, worst: int) -> Table:
    rows = [
        (client, f"{refused:,}", f"{len(traffic.times[client]):,}")
        for client, refused in judgement.worst(worst)
    ]
    title = f"Most refused by {judgement.limit}:"
    return Table(title, ("client", "refused", "requests"), rows, frozenset(("refused", "requests")))


def percentage(share: Fraction) -> str:
    """Say a share so that little is not mistaken for nothing, nor nearly all for all."""
    text = f"{float(share * 100):.2f}%"
    if share and text == "0.00%":
        return "<0.01%"
    return ">99.99%" if share < 1 and text == "100.00%" else text


def _draw(path: Path, traffic: Traffic, judgements: Sequence[Judgement]) -> None:
    try:
        plot(path, traffic, [judgement.limit for judgement in judgements])
    except OSError as error:
        raise Failure(f"{path} cannot be written: {error.strerror or error}.") from None
    click.echo(f"Drew {path}.", err=True)
