"""The documentation's plots, which code draws, and the text about them."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT

pytest.importorskip("matplotlib")

MODULE = runpy.run_path(str(ROOT / "docs" / "plots.py"))
PLOTS: dict[str, Callable[[], Any]] = MODULE["PLOTS"]


def titles(plot: str) -> list[str]:
    return [ax.get_title(loc="left") or ax.get_title() for ax in PLOTS[plot]().axes]


def test_every_plot_is_committed_as_it_is_drawn(tmp_path: Path) -> None:
    drawn = MODULE["draw"](tmp_path)
    assert [f.name for f in drawn if not (ROOT / "docs" / "images" / f.name).exists()] == []


@pytest.mark.parametrize("plot", PLOTS)
def test_every_plot_is_on_a_page(plot: str) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert any(f"images/{plot}.svg" in page.read_text(encoding="utf-8") for page in pages)


def test_a_window_lets_twice_as_many_through_within_a_moment() -> None:
    bucket, window = titles("bucket-against-window")
    assert (bucket.split(" — ")[1], window.split(" — ")[1]) == (
        "at most 11 pass within 2 seconds",
        "at most 20 pass within 2 seconds",
    )


def test_only_a_bucket_without_headroom_refuses_after_a_hiccup() -> None:
    headroom, none = titles("bursts")
    assert headroom == "5/second burst 20: 0 of 136 requests refused"
    assert none == "3/second burst 20: 8 of 136 requests refused"


def test_windows_make_an_impatient_client_wait_for_most_of_their_length() -> None:
    gaps = [title.split("longest gap ")[1] for title in titles("three-kinds")]
    assert gaps == ["1.0 s", "7.8 s", "7.8 s"]
