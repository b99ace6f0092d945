"""``flask bucket show`` and ``reset``: show or delete the buckets of one client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import click
from flask.cli import with_appcontext

from ..clients import normal_address
from ..enforcing import Enforcer
from ..errors import StoreUnavailable
from ..keys import keys_start
from .buckets import Bucket, server_of, stored
from .layout import Line, Table, laid_out
from .output import (
    Failure,
    counted,
    duration,
    print_json,
    print_lines,
    print_text,
    terminal_width,
    wrapped,
)
from .states import limiters

_limiter = click.option("--limiter", metavar="NAME", help="Only this Limiter. The default is all.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command()
@click.argument("client")
@_limiter
@_json
@with_appcontext
def show(client: str, limiter: str | None, as_json: bool) -> None:
    """Show a client's buckets.

    For each, it prints the tokens, the capacity, and the times to the next token and to full.

    CLIENT is what the key function returns: an address, a user, an API key. A full bucket is
    not stored, so it is not shown.
    """
    with reachable():
        found = [
            bucket
            for name, state in limiters(limiter).items()
            for spelled in spellings(client, state)
            for bucket in stored(name, state, spelled)
        ]
    found.sort(key=lambda bucket: (bucket.limiter, bucket.scope, bucket.name))
    if as_json:
        print_json({"client": client, "buckets": [bucket.as_data() for bucket in found]})
    elif found:
        print_lines(bucket_lines(found, with_client=False))
    else:
        print_text(f"No bucket of {client} is stored, so all are full.")


@click.command()
@click.argument("client", required=False)
@click.option("--all", "everybody", is_flag=True, help="All buckets of all clients.")
@click.option("--yes", is_flag=True, help="With --all: do not ask first.")
@_limiter
@_json
@with_appcontext
def reset(
    client: str | None, everybody: bool, yes: bool, limiter: str | None, as_json: bool
) -> None:
    """Delete a client's buckets, so that they are full again.

    CLIENT is what the key function returns: an address, a user, an API key.
    """
    if (client is None) != everybody:
        raise Failure("Expected a client, or --all for all clients.")
    states = limiters(limiter)
    with reachable():
        forgotten = _reset_all(states, yes) if client is None else _reset_one(client, states)
    if as_json:
        print_json({"client": client, "forgotten": forgotten})
    else:
        click.echo(f"Forgot {counted(forgotten, 'bucket')}.")


def _reset_one(client: str, states: Mapping[str, Enforcer]) -> int:
    for name, state in states.items():
        server_of(name, state).clock()  # if one is out of reach, nothing is forgotten
    return sum(
        state.store.reset(spelled, state.spelling.prefix)
        for state in states.values()
        for spelled in spellings(client, state)
    )


def _reset_all(states: Mapping[str, Enforcer], yes: bool) -> int:
    for name, state in states.items():
        server_of(name, state)  # fails if the buckets are in another process
    if not yes:
        keys = " and ".join(keys_start(state.spelling.prefix) + "*" for state in states.values())
        click.confirm(f"Forget the buckets of all clients ({keys})?", abort=True, err=True)
    return sum(state.store.reset(None, state.spelling.prefix) for state in states.values())


def spellings(client: str, state: Enforcer) -> list[str]:
    """Return the spellings of a client in keys: as given, and normalised as an address."""
    address = normal_address(client, state.config.ipv6_prefix) or client
    return [state.spelling.client(name) for name in dict.fromkeys((client, address))]


@contextmanager
def reachable() -> Iterator[None]:
    """Turn an outage of the store into one line."""
    try:
        yield
    except StoreUnavailable as error:
        raise Failure(f"The store is out of reach: {error.reason}", 1) from None


#: Explain the question marks in a table.
_OF_A_FUNCTION = (
    "?: A function returns this limit for each request, so it is not known here. TOKENS are those "
    "that the last request left."
)
_OF_NO_RULE = (
    "?: No rule of the application has this limit: an earlier deploy charged it. TOKENS are those "
    "that the last request left."
)


def bucket_lines(buckets: list[Bucket], *, with_client: bool) -> list[Line]:
    """Return buckets as a table, and an explanation of its question marks if it has any."""
    width = terminal_width()
    lines = laid_out(_table(buckets, with_client=with_client), width)
    unknown = [bucket for bucket in buckets if bucket.limit is None]
    for note in dict.fromkeys(_OF_A_FUNCTION if b.from_function else _OF_NO_RULE for b in unknown):
        lines += [Line(""), *map(Line, wrapped(note, width).splitlines())]
    return lines


def _table(buckets: list[Bucket], *, with_client: bool) -> Table:
    headings = ["scope", "limit", "tokens", "capacity", "next token in", "full in"]
    numbers = frozenset(headings[2:])
    several = len({bucket.limiter for bucket in buckets}) > 1
    if with_client:
        headings.insert(0, "client")
    if several:
        headings.append("limiter")
    rows, styles = [], []
    for bucket in buckets:
        row = [bucket.place, *_columns(bucket)]
        if with_client:
            row.insert(0, bucket.client)
        if several:
            row.append(bucket.limiter)
        rows.append(tuple(row))
        styles.append("red" if bucket.tokens < 1 else "yellow" if bucket.fill < 0.2 else "")
    return Table("", tuple(headings), rows, numbers, styles, group=1)


def _columns(bucket: Bucket) -> tuple[str, ...]:
    source = f" from {bucket.function or 'a function'}" if bucket.from_function else ""
    if bucket.limit is None:
        tokens = "?" if bucket.known_tokens is None else f"{bucket.known_tokens:,}"
        return f"{bucket.name}{source or ' of no rule'}", tokens, "?", "?", "?"
    limit = f"{bucket.limit}{source}"
    return (
        f"ban after {limit}" if bucket.kind == "ban" else limit,
        "banned" if bucket.is_banned else f"{bucket.tokens:,}",
        f"{bucket.limit.capacity:,}",
        "-" if bucket.next_in is None else duration(bucket.next_in),
        duration(bucket.full_in),
    )
