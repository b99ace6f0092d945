"""The pages of the documentation, and the blocks of code in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: All pages of the repository.
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])

#: A fence with its language. MyST's directives have theirs in braces, and are not code.
_FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,})(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of code."""

    page: Path
    #: The number of the first line of code, counted from 1.
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{name(self.page)}:{self.line}"


@dataclass(frozen=True, slots=True)
class Chapter:
    """Blocks that run in order as one module: those of a page, or of one recipe."""

    page: Path
    #: The heading; empty for a whole page.
    heading: str
    blocks: tuple[Block, ...]

    def __str__(self) -> str:
        return f"{name(self.page)}: {self.heading}" if self.heading else name(self.page)


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, *languages: str) -> list[Block]:
    """Return a page's blocks of these languages, or all blocks if no language is given."""
    return [block for block in _blocks(page) if not languages or block.language in languages]


def _blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start("text")) + 1
        indent = match["indent"]
        lines = [row.removeprefix(indent) for row in match["text"].splitlines(keepends=True)]
        yield Block(page, line, match["info"].strip(), "".join(lines))


def recipes(page: Path, *languages: str) -> list[Chapter]:
    """Return a chapter for each heading of the second level that has blocks."""
    text = _FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), page.read_text(encoding="utf-8"))
    lines = text.split("\n")
    begins = [n for n, line in enumerate(lines, 1) if line.startswith("## ")]
    ends = [*begins[1:], len(lines) + 1]
    found = []
    for begin, end in zip(begins, ends, strict=True):
        inside = tuple(b for b in blocks(page, *languages) if begin < b.line < end)
        if inside:
            found.append(Chapter(page, lines[begin - 1].removeprefix("## "), inside))
    return found


def prose(page: Path) -> str:
    """Return a page without its fenced blocks and spans of code."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return re.sub(r"`[^`\n]+`", "", text)
