"""What the commands print: tables for people, plain text for pipes, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import RenderableType


class Failure(click.ClickException):
    """What was asked for cannot be done as it was asked: one line on standard error.

    Exit code 2 is for wrong arguments and unreadable input, 1 for everything that went wrong
    although the question was right.
    """

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(" ".join(message.split()))
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it here as well


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings, with nothing said about how they will look."""

    title: str
    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    #: The headings of columns of numbers, which are set flush right.
    numbers: frozenset[str] = frozenset()
    #: The style of each row on a terminal, as rich names it; none: all are plain.
    styles: Sequence[str] = ()


def print_table(table: Table) -> None:
    """Print a table: with lines and colours on a terminal, as aligned columns in a pipe."""
    if wants_colours():
        from rich.console import Console

        Console().print(rich_table(table))
    else:
        click.echo(plain_table(table))


def print_json(value: Any) -> None:
    """Print a value for programs."""
    click.echo(json.dumps(value, indent=2))


def wants_colours() -> bool:
    """Return whether a person looks at a terminal, and rich is there to please them."""
    return sys.stdout.isatty() and find_spec("rich") is not None


def plain_table(table: Table) -> str:
    """Lay a table out in aligned columns."""
    rows = [tuple(heading.upper() for heading in table.headings)]
    rows += [tuple(printable(cell) for cell in row) for row in table.rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = [heading in table.numbers for heading in table.headings]
    lines = [table.title] if table.title else []
    for row in rows:
        cells = [
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(row, widths, right, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def rich_table(table: Table) -> RenderableType:
    """Make what rich draws."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    # Texts, never markup: what clients send must not be able to colour our tables.
    drawn = RichTable(
        title=Text(table.title) if table.title else None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for heading in table.headings:
        drawn.add_column(
            Text(heading),
            justify="right" if heading in table.numbers else "left",
            overflow="fold",  # a cut-off client is one that cannot be looked up
        )
    for n, row in enumerate(table.rows):
        style = table.styles[n] if table.styles else None
        drawn.add_row(*(Text(printable(cell)) for cell in row), style=style)
    return drawn


def printable(text: str) -> str:
    """Return a text in which nothing steers a terminal: clients choose their names."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def counted(number: int, thing: str, things: str | None = None) -> str:
    """Say how many: ``1 bucket``, ``2,000 buckets``."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def duration(seconds: float | None) -> str:
    """Say how long, in two units at most: ``350 ms``, ``4.2 s``, ``3 min 20 s``, ``2 d 4 h``."""
    if seconds is None:
        return "never"
    if seconds <= 0:
        return "now"
    if seconds < 0.9995:
        return f"{max(1, round(seconds * 1000))} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    left = round(seconds)
    for unit, length, smaller, part in (
        ("d", 86_400, "h", 3_600),
        ("h", 3_600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if left >= length:
            rest = left % length // part
            return f"{left // length:,} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{left} s"
