"""Every block of code in README and docs runs, and prints what the page says it prints."""

from __future__ import annotations

import doctest
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from flask import Flask

from example_app import create_app
from flask_bucket import Limiter, MemoryStore
from tests.docs import shell
from tests.docs.conftest import Clock
from tests.docs.pages import PAGES, ROOT, Block, Chapter, blocks, name, recipes
from tests.servers import Server

#: Blocks in these languages run in order, as one module for each chapter; or are read as data.
RUN = ("python", "pycon", "console")
READ = ("json", "toml")
#: Commands that do not run here (`test_readme.py` checks the names in them), and settings of
#: other programs.
OTHER = ("sh", "nginx", "text")

#: The Redis URL in the examples.
ADDRESS = "redis://localhost:6379/0"

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

#: Pages whose blocks use the reader's own `app` and `limiter`.
OF_AN_APP = {"docs/outages.md", "docs/metrics.md", "docs/proof.md", "docs/testing.md"}

#: The page with recipes. Each recipe is complete, so each one is a chapter.
RECIPES = ROOT / "docs" / "recipes.md"

#: Returns a running server, for examples that need one.
Serve = Callable[[], Server]


@pytest.fixture
def serve(request: pytest.FixtureRequest) -> Serve:
    def started() -> Server:
        server: Server = request.getfixturevalue("valkey")
        return server

    return started


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_is_in_a_language_that_is_tested(page: Path) -> None:
    known = (*RUN, *READ, *OTHER)
    unknown = [f"{block}: {block.language!r}" for block in blocks(page) if not _is(block, known)]
    assert unknown == []


def _is(block: Block, languages: tuple[str, ...]) -> bool:
    return block.language in languages or block.language.startswith("{")  # a directive


def chapters() -> list[Chapter]:
    pages = [page for page in PAGES if blocks(page, *RUN) and page != RECIPES]
    whole = [Chapter(page, "", tuple(blocks(page, *RUN))) for page in pages]
    return [*whole, *recipes(RECIPES, *RUN)]


# Connexion imports names that its dependencies call deprecated.
@pytest.mark.filterwarnings("ignore:Using `httpx` with", "ignore:jsonschema.*deprecated")
@pytest.mark.parametrize("chapter", chapters(), ids=str)
def test_the_code_of_a_chapter_runs(
    chapter: Chapter, clock: Clock, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run the blocks in order in one module, as if a reader had copied them."""
    module: dict[str, Any] = {"__name__": "example"}
    if name(chapter.page) in OF_AN_APP:
        module |= readers_app()
    for block in chapter.blocks:
        text = block.text
        if ADDRESS in text:
            text = text.replace(ADDRESS, serve().url)
        if block.language == "python":
            # Compile with the page's name and line, so that a traceback shows the place.
            code = compile("\n" * (block.line - 1) + text, str(block.page), "exec")
            exec(code, module)
            run_tests(module)
        elif block.language == "pycon":
            check_session(block, text, module, clock)
        else:
            check_console(block, text, module, serve, clock, monkeypatch)


def test_every_recipe_is_a_chapter_of_its_own() -> None:
    headings = [line for line in RECIPES.read_text().split("\n") if line.startswith("## ")]
    assert [f"## {chapter.heading}" for chapter in recipes(RECIPES, *RUN)] == headings


def readers_app() -> dict[str, Any]:
    app = Flask("shop")
    limiter = Limiter(app, redis=MemoryStore())

    @app.post("/login")
    @limiter.limit("5/minute", deduct_when=lambda response: response.status_code == 401)
    def login() -> tuple[str, int]:
        return "", 401

    return {"app": app, "limiter": limiter}


def run_tests(module: dict[str, Any]) -> None:
    """Run the tests that a page shows, with the app as their fixture."""
    for test in [known for known in module if known.startswith("test_")]:
        module.pop(test)(app=module["app"])


class Session(doctest.DocTestRunner):
    """Runs a session at the pace of a clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(optionflags=FLAGS, verbose=False)
        self._clock = clock

    def report_start(self, *about: Any) -> None:
        self._clock.statement()


def check_session(block: Block, text: str, module: dict[str, Any], clock: Clock) -> None:
    test = doctest.DocTestParser().get_doctest(
        text, module, str(block), str(block.page), block.line - 1
    )
    test.globs = module  # not a copy, so that later blocks see the names that a session defines
    report: list[str] = []
    Session(clock).run(test, out=report.append, clear_globs=False)
    assert not report, "".join(report)


def check_console(
    block: Block,
    text: str,
    module: dict[str, Any],
    serve: Serve,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Run a session. Port 8000 is the example app, and port 5000 is the page's own app."""
    url = serve().url if "redis-cli" in text else "memory://"
    monkeypatch.setenv("FLASK_BUCKET_REDIS_URL", url)
    example = create_app()

    def app_at(port: str) -> Flask:
        app: Flask = {"8000": example, "5000": module.get("app")}[port]  # type: ignore[assignment]
        return app

    def client() -> redis.Redis:
        return serve().client()

    for command, shown in shell.commands(text):
        clock.statement()
        output = shell.play(command, app_at, client)
        if output is not None:
            listing = "\n".join(output)
            assert shell.shows(output, shown), f"{block}: $ {command}\nprints\n{listing}"


@pytest.mark.parametrize("block", [b for p in PAGES for b in blocks(p, *READ)], ids=str)
def test_data_can_be_read(block: Block) -> None:
    json.loads(block.text) if block.language == "json" else tomllib.loads(block.text)


@pytest.mark.parametrize("block", [b for p in PAGES for b in blocks(p, "nginx")], ids=str)
def test_settings_of_a_proxy_set_the_headers_that_proxyfix_reads(block: Block) -> None:
    assert block.text.count("{") == block.text.count("}")
    assert re.search(r"proxy_set_header X-Forwarded-For \$\w+;", block.text)
