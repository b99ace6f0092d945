"""Typos: how far words are apart, and which known one was meant."""

from __future__ import annotations

import pytest

from flask_bucket.typos import edits, meant


@pytest.mark.parametrize(
    ("word", "other", "expected"),
    [
        ("", "", 0),
        ("", "abc", 3),
        ("abc", "", 3),
        ("same", "same", 0),
        ("PSOT", "POST", 1),
        ("PST", "POST", 1),
        ("POOST", "POST", 1),
        ("PAST", "POST", 1),
        ("LIST", "POST", 2),
        ("ENABLE", "ENABLED", 1),
        ("kitten", "sitting", 3),
    ],
)
def test_words_are_so_many_letters_apart(word: str, other: str, expected: int) -> None:
    assert edits(word, other) == edits(other, word) == expected


def test_the_nearest_word_was_meant() -> None:
    assert meant("HEADRES", ["ENABLED", "HEADERS"], at_most=2) == "HEADERS"


def test_a_word_that_is_far_from_all_was_meant_as_it_is() -> None:
    assert meant("REGION", ["ENABLED", "HEADERS"], at_most=2) is None


def test_two_short_words_are_not_alike_for_a_few_letters() -> None:
    assert meant("TAGS", ["BANS"], at_most=2) is None
    assert meant("BAN", ["BANS"], at_most=2) == "BANS"
