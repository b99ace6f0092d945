"""The README's promises in addition to its code: commands, settings, pictures, links."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from flask_bucket.config import Config
from tests.docs.pages import PAGES, ROOT, blocks, name, prose

README = ROOT / "README.md"

COMMANDS = [
    "python3 -m pip install nox && python3 -m nox -s example",
    "python3 -m pip install nox && python3 -m nox -s tests",
]


def sessions() -> set[str]:
    """Return the names of noxfile.py's sessions."""
    text = (ROOT / "noxfile.py").read_text()
    return set(re.findall(r"^@nox\.session.*\ndef (\w+)", text, re.MULTILINE))


@pytest.mark.parametrize("command", COMMANDS)
def test_the_two_commands_are_blocks_of_their_own(command: str) -> None:
    assert f"{command}\n" in [block.text for block in blocks(README, "sh")]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_nox_session_that_is_named_exists(page: Path) -> None:
    named = re.findall(r"nox -s ((?:[a-z]+ ?)+)", page.read_text())
    assert {session for some in named for session in some.split()} <= sessions()


def defaults() -> dict[str, object]:
    """Return each key with its default, as in the tables."""
    made = Config()
    found: dict[str, object] = {
        "BUCKET_" + field.name.upper(): getattr(made, field.name)
        for field in dataclasses.fields(Config)
    }
    # If they are unset, the constructor's default () applies.
    found |= {"BUCKET_DEFAULT_LIMITS": (), "BUCKET_APPLICATION_LIMITS": (), "BUCKET_BANS": ()}
    return found


@pytest.mark.parametrize("page", [README, ROOT / "docs" / "configuration.md"], ids=name)
def test_a_table_lists_every_key_and_its_default(page: Path) -> None:
    rows = re.findall(r"^\| `(BUCKET_\w+)` \| `([^`]+)` \|", page.read_text(), re.MULTILINE)
    listed = {key: eval(value) for key, value in rows}
    assert listed == defaults()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_keys_that_are_named_exist(page: Path) -> None:
    # A word that ends in an underscore is a prefix, and not a key.
    named = set(re.findall(r"\bBUCKET_[A-Z0-9_]*[A-Z0-9]\b", prose_and_code(page)))
    misspelled_on_purpose, of_applications = {"BUCKET_TIMOUT"}, {"BUCKET_NAME", "BUCKET_REGION"}
    assert named - misspelled_on_purpose - of_applications <= set(defaults())


def prose_and_code(page: Path) -> str:
    return page.read_text(encoding="utf-8").replace("FLASK_BUCKET_", "BUCKET_")


LINK = re.compile(r"(?<!\\)!?\[[^\]]*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_relative_link_and_image_leads_somewhere(page: Path) -> None:
    missing = []
    for target in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            missing.append(target)
    assert missing == []


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ +(.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_html_image_exists(page: Path) -> None:
    sources = re.findall(r'(?:src|srcset)="([^":]+)"', prose(page))
    assert [source for source in sources if not (page.parent / source).exists()] == []


def test_every_page_is_in_the_table_of_contents() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    listed = {
        line
        for block in re.findall(r"```\{toctree\}(.*?)```", index, re.DOTALL)
        for line in block.split("\n")
        if re.fullmatch(r"[\w-]+", line)
    }
    assert {p.stem for p in (ROOT / "docs").glob("*.md")} - {"index"} <= listed
