"""The output of the commands: tables for people, plain text for pipes, JSON for programs."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from .layout import Line, Table, laid_out

if TYPE_CHECKING:
    from rich.text import Text


class Failure(click.ClickException):
    """An error that is one line on standard error.

    Exit code 2 is for wrong arguments and unreadable input, 1 for any other problem.
    """

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(" ".join(message.split()))
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it here


def print_table(table: Table) -> None:
    """Print a table. It is fitted to a terminal, but not to a pipe."""
    print_lines(laid_out(table, terminal_width()))


def print_lines(lines: Sequence[Line]) -> None:
    """Print lines, in colours on a terminal if rich is installed."""
    if not wants_colours():
        click.echo("\n".join(line.text for line in lines))
        return
    from rich.console import Console

    Console().print(coloured(lines), soft_wrap=True)


def print_text(text: str, *, item: bool = False, err: bool = False) -> None:
    """Print a sentence or two. On a terminal, lines end between words.

    :param item: whether it is an item of a list.
    """
    width = terminal_width()
    click.echo(wrapped(f"- {text}" if item else text, width, "  " if item else ""), err=err)


def wrapped(text: str, width: int | None, indent: str = "") -> str:
    """Wrap a text between words. A longer word has a line of its own.

    :param width: the characters in a line; None for no limit.
    :param indent: what each further line begins with.
    """
    if width is None:
        return text
    return textwrap.fill(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def terminal_width() -> int | None:
    """Return the width of the terminal in characters; None for a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_json(value: Any) -> None:
    """Print a value for programs."""
    click.echo(json.dumps(value, indent=2))


def wants_colours() -> bool:
    """Return whether the output is a terminal, and rich is installed."""
    return sys.stdout.isatty() and find_spec("rich") is not None


def coloured(lines: Sequence[Line]) -> Text:
    """Return lines in their colours, for rich."""
    from rich.text import Text

    # Texts, not markup: a client must not be able to colour our tables.
    return Text("\n").join(Text(line.text, line.style) for line in lines)


def counted(number: int, thing: str, things: str | None = None) -> str:
    """Write a number of things: ``1 bucket``, ``2,000 buckets``."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def duration(seconds: float | None) -> str:
    """Write a duration in two units at most: ``350 ms``, ``4.2 s``, ``3 min 20 s``, ``2 d 4 h``."""
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
