"""The layout of tables: aligned columns that fit a width without breaking a word."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from unicodedata import combining, east_asian_width

_GAP = "  "


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings."""

    title: str
    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    #: The headings of columns of numbers. They are set flush right, and never wrapped.
    numbers: frozenset[str] = frozenset()
    #: The style of each row on a terminal, in rich's words. Empty: all rows are plain.
    styles: Sequence[str] = ()
    #: The headings of columns of paths, which may be wrapped after a slash.
    paths: frozenset[str] = frozenset()
    #: The number of first columns that move to a line of their own if rows are too long. A row
    #: in which they are empty belongs to the row above.
    group: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """One line of output, and its style on a terminal."""

    text: str
    style: str = ""


def laid_out(table: Table, width: int | None = None) -> list[Line]:
    """Lay a table out.

    :param width: the characters in a line; None for no limit. Cells are wrapped between words. If
        that is not enough, the first columns get a line of their own. If that is not enough
        either, every cell does.
    """
    lines = _in_columns(table, width)
    if lines is None and table.group:
        assert width is not None
        lines = _in_groups(table, width)
    if lines is None:
        assert width is not None
        lines = _in_blocks(table, width)
    return [Line(table.title, "bold"), *lines] if table.title else lines


def _in_columns(table: Table, width: int | None) -> list[Line] | None:
    """Lay a table out in columns. None if they do not fit."""
    rows = _rows(table, width)
    if rows is None:
        return None
    head, *others = rows
    lines = [Line(text.upper(), "bold") for text in head]
    for n, row in enumerate(others):
        lines += [Line(text, _style(table, n)) for text in row]
    return lines


def _in_groups(table: Table, width: int) -> list[Line] | None:
    """Lay a table out in columns, with the first ones on a line of their own above the others."""
    n = table.group
    rest = replace(table, headings=table.headings[n:], rows=[row[n:] for row in table.rows])
    rows = _rows(rest, width - len(_GAP))
    if rows is None:
        return None
    head, *others = rows
    lines = [Line("  ".join(table.headings[:n]).upper(), "bold")]
    lines += [Line(_GAP + text.upper(), "bold") for text in head]
    for number, (row, laid) in enumerate(zip(table.rows, others, strict=True)):
        style = _style(table, number)
        if any(row[:n]):
            lines += [Line(text, style) for text in _heads(table, row[:n], width)]
        lines += [Line(_GAP + text, style) for text in laid]
    return lines


def _heads(table: Table, cells: Sequence[str], width: int) -> list[str]:
    """Return the lines of a group's first columns: a single line, if it fits."""
    texts = [printable(cell) for cell in cells]
    joined = _GAP.join(texts)
    if cell_width(joined) <= width:
        return [joined]
    return [line for n, text in enumerate(texts) for line in _Column(table, n).wrapped(text, width)]


def _style(table: Table, row: int) -> str:
    return table.styles[row] if table.styles else ""


def _rows(table: Table, width: int | None) -> list[list[str]] | None:
    """Return the lines of the heading and of each row, in columns; None if they do not fit."""
    columns = [_Column(table, n) for n in range(len(table.headings))]
    widths = [column.natural for column in columns]
    if width is not None and _total(widths) > width:
        least = [column.least for column in columns]
        if _total(least) > width:
            return None
        widths = _shrunk(widths, least, width)
    rows = [table.headings, *(tuple(map(printable, row)) for row in table.rows)]
    return [
        [_joined(parts, columns, widths) for parts in _wrapped(row, columns, widths)]
        for row in rows
    ]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _shrunk(widths: list[int], least: list[int], room: int) -> list[int]:
    """Narrow the widest columns that can be narrower, until a row fits."""
    widths = list(widths)
    while _total(widths) > room:
        narrower = [n for n in range(len(widths)) if widths[n] > least[n]]
        widths[max(narrower, key=widths.__getitem__)] -= 1
    return widths


class _Column:
    """One column: its natural and its least width, and the wrapping of its cells."""

    def __init__(self, table: Table, n: int) -> None:
        self._heading = table.headings[n]
        self.is_number = self._heading in table.numbers
        self._splits = re.compile(r"(?<=[ /])" if self._heading in table.paths else r"(?<= )")
        cells = [printable(row[n]) for row in table.rows]
        self.natural = max(map(cell_width, (self._heading, *cells)))
        whole = cells if self.is_number else [w for cell in cells for w in self._words(cell)]
        words = [*self._heading.split(), *whole]
        self.least = max(map(cell_width, words), default=0)

    def _words(self, text: str) -> list[str]:
        return [word.rstrip() for word in self._splits.split(text)]

    def wrapped(self, text: str, width: int) -> list[str]:
        """Return the lines of a cell."""
        lines = [""]
        for word in self._splits.split(text):
            if lines[-1] and cell_width((lines[-1] + word).rstrip()) > width:
                lines.append("")
            lines[-1] += word
        return [line.rstrip() for line in lines]

    def aligned(self, text: str, width: int) -> str:
        space = " " * (width - cell_width(text))
        return space + text if self.is_number else text + space


def _wrapped(
    row: Sequence[str], columns: Sequence[_Column], widths: Sequence[int]
) -> list[list[str]]:
    """Return the lines of a row. Each line has a part of every cell."""
    cells = [
        column.wrapped(cell, width)
        for cell, column, width in zip(row, columns, widths, strict=True)
    ]
    height = max(map(len, cells))
    return [[cell[n] if n < len(cell) else "" for cell in cells] for n in range(height)]


def _joined(parts: Sequence[str], columns: Sequence[_Column], widths: Sequence[int]) -> str:
    aligned = [c.aligned(part, w) for part, c, w in zip(parts, columns, widths, strict=True)]
    return _GAP.join(aligned).rstrip()


def _in_blocks(table: Table, width: int) -> list[Line]:
    """Lay each row out as a block, with a line or more for each cell that is not empty."""
    indent = max(map(cell_width, table.headings)) + len(_GAP)
    room = max(1, width - indent)
    lines: list[Line] = []
    columns = [_Column(table, n) for n in range(len(table.headings))]
    for n, row in enumerate(table.rows):
        if n:
            lines.append(Line(""))
        for column, heading, cell in zip(columns, table.headings, row, strict=True):
            name = heading.upper()
            if cell not in ("", "-"):
                for text in column.wrapped(printable(cell), room):
                    lines.append(Line(name.ljust(indent) + text, _style(table, n)))
                    name = ""
    return lines


def cell_width(text: str) -> int:
    """Return the columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def printable(text: str) -> str:
    """Return a text without control characters: clients choose their names."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
