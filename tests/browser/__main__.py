"""Take the pictures for the documentation: ``python -m tests.browser docs/images``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.example_app.served import eventually, served

from .page import Page, browser


def play(page: Page) -> None:
    """Let one client send more than its limit allows, and the other one less."""
    page.press("stream")
    eventually(lambda: page.counts("a")[1] > 15)
    page.choose("b")
    page.press("burst")
    for pause in (4, 2, 1, 2, 1, 3):
        time.sleep(pause)
        page.press("one")
    page.run("for (let i = 0; i < 6; i += 1) document.querySelector('#one').click()")
    page.choose("a")
    time.sleep(0.5)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with served() as example, browser() as driver:
        page = Page(driver)
        page.open(example.port)
        play(page)
        for scheme in ("light", "dark"):
            page.look(height=1000, scale=1.5, scheme=scheme)
            time.sleep(0.5)
            page.picture(folder / f"page-{scheme}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
