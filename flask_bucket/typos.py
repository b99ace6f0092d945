"""Typos: the known word that is nearest to a misspelt one."""

from __future__ import annotations

from collections.abc import Iterable


def meant(word: str, known: Iterable[str], at_most: int) -> str | None:
    """Return the known word that is nearest to another; None if none is near.

    :param at_most: how many letters may be wrong; of short words, no more than a third.

    >>> meant("PSOT", ["GET", "POST"], at_most=1)
    'POST'
    """
    near = min(known, key=lambda other: edits(word, other))
    return near if edits(word, near) <= min(at_most, len(near) // 3) else None


def edits(word: str, other: str) -> int:
    """Return how many letters must be changed, added, removed or swapped with the next one."""
    rows = [list(range(len(other) + 1))]
    for i, letter in enumerate(word, 1):
        row = [i]
        for j, wanted in enumerate(other, 1):
            fewest = min(row[-1] + 1, rows[-1][j] + 1, rows[-1][j - 1] + (letter != wanted))
            if i > 1 and j > 1 and word[i - 2] == wanted and letter == other[j - 2]:
                fewest = min(fewest, rows[-2][j - 2] + 1)
            row.append(fewest)
        rows.append(row)
    return rows[-1][-1]
