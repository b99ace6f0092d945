"""``flask bucket top``: the emptiest buckets, once or as a live view."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from heapq import nsmallest

import click
from flask.cli import with_appcontext

from ..enforcing import Enforcer
from .buckets import Bucket, server_of, stored
from .clients import bucket_lines, reachable
from .layout import Line
from .output import coloured, print_json, print_lines, wants_colours
from .states import limiters

ALL_FULL = "All buckets are full."


@click.command()
@click.option(
    "-n",
    "count",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="The number of buckets.",
)
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    help="With --watch: seconds between two looks. Each look reads every bucket.",
)
@click.option("--limiter", metavar="NAME", help="Only this Limiter. The default is all.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_appcontext
def top(count: int, watch: bool, interval: float, limiter: str | None, as_json: bool) -> None:
    """Show the emptiest buckets of all clients."""
    states = limiters(limiter)

    def look() -> list[Bucket]:
        return emptiest(states, count)

    with reachable():
        for name, state in states.items():
            server_of(name, state)
        if watch:
            _watch(look, interval, as_json)
        elif as_json:
            print_json(_as_data(look()))
        else:
            print_lines(_lines(look()))


def emptiest(states: dict[str, Enforcer], count: int) -> list[Bucket]:
    """Return the buckets with the smallest share of their tokens left, the emptiest first."""
    everything = (
        bucket
        for name, state in states.items()
        for bucket in stored(name, state)
        if (bucket.fill < 1 or bucket.limit is None) and bucket.kind != "ban"
    )
    return nsmallest(count, everything, key=lambda b: (b.fill, b.client, b.scope, b.name))


def _as_data(buckets: list[Bucket]) -> dict[str, object]:
    return {"buckets": [bucket.as_data() for bucket in buckets]}


def _lines(buckets: list[Bucket]) -> list[Line]:
    if not buckets:
        return [Line(ALL_FULL)]
    return bucket_lines(buckets, with_client=True)


def _watch(look: Callable[[], list[Bucket]], interval: float, as_json: bool) -> None:
    """Repeat the look: in place on a terminal, one below the other in a pipe."""
    try:
        if wants_colours() and not as_json:
            _watch_live(look, interval)
        while True:
            if as_json:
                print_json(_as_data(look()))
            else:
                click.echo(f"{datetime.now():%H:%M:%S}")
                click.echo("".join(line.text + "\n" for line in _lines(look())))
            time.sleep(interval)  # as --interval says
    except KeyboardInterrupt:
        pass  # Ctrl-C ends it


def _watch_live(look: Callable[[], list[Bucket]], interval: float) -> None:
    from rich.live import Live

    with Live(auto_refresh=False, screen=True) as live:
        while True:
            live.update(coloured(_lines(look())), refresh=True)
            time.sleep(interval)  # as --interval says
