"""The words and tables of the pages, compared with the code."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask

from flask_bucket import Charge, Limit, Limiter, MemoryStore, RedisStore
from flask_bucket.cli import bucket
from tests.docs.pages import PAGES, ROOT, blocks, name
from tests.servers import Server

DEPLOYMENT = ROOT / "docs" / "deployment.md"


def urls() -> list[str]:
    """Return the URLs in the table of kinds of servers."""
    text = DEPLOYMENT.read_text(encoding="utf-8")
    return re.findall(r"^\| `([a-z+]+://[^`]*)`", text, re.MULTILINE)


def test_the_table_of_servers_has_some() -> None:
    assert len(urls()) >= 5


@pytest.mark.parametrize("url", urls())
def test_each_kind_of_server_in_the_table_can_be_named(url: str) -> None:
    Limiter(Flask("shop"), redis=url)  # connects to nothing
    if url != "memory://":
        RedisStore.from_url(url).close()


@pytest.fixture
def limited_user(valkey: Server) -> Iterator[str]:
    """The URL of a Redis user with the rights that the page lists."""
    (block,) = (b for b in blocks(DEPLOYMENT, "text") if b.text.startswith("ACL"))
    with valkey.client() as client:
        client.execute_command(*shlex.split(block.text))
        yield valkey.url.replace("redis://", "redis://bucket:secret@")
        client.acl_deluser("bucket")


def test_the_rights_that_are_named_are_enough(limited_user: str) -> None:
    store = RedisStore.from_url(limited_user, timeout=5)
    charge = Charge(Limit.parse("5/second"), "bucket:{ann}:search:per-second")
    assert store.take([charge]).allowed
    assert store.peek([charge]).outcomes[0].remaining == 3
    store.settle([charge])
    assert store.reset("ann") == 1
    store.close()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_that_is_named_exists(page: Path) -> None:
    named = re.findall(r"flask (?:--app \w+ )?bucket ([a-z]+)", page.read_text(encoding="utf-8"))
    assert set(named) <= set(bucket.commands)


def test_the_map_of_the_code_names_every_module_and_nothing_else() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:flask_bucket|example_app|tests|docs)[\w/.]*)`", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    named = {ROOT / path for path in paths}
    modules = {p for p in (ROOT / "flask_bucket").rglob("*.py") if p.name != "__init__.py"}
    unnamed = {p for p in modules if named.isdisjoint((p, *p.parents))}
    assert {name(path) for path in unnamed} == set()


def test_a_limiter_with_a_name_has_keys_of_its_own() -> None:
    app = Flask("shop")
    limiter = Limiter(app, name="api", redis=MemoryStore())
    with app.app_context():
        key = limiter.consume("5/second", key="ann").outcomes[0].key
    assert key.startswith("bucket/api:{ann}:")
