"""Every command on the example app, and the documentation of the commands held to the truth."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask

import flask_bucket.cli
from example_app import create_app
from flask_bucket.cli.formats import formats
from tests.cli.conftest import Run, get, run_in
from tests.servers import Server

PAGE = Path(__file__).parents[2] / "docs" / "tools.md"


@pytest.fixture
def example(valkey: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flask]:
    monkeypatch.setenv("FLASK_BUCKET_REDIS_URL", valkey.url)
    monkeypatch.setenv("FLASK_BUCKET_TIMEOUT", "5")
    app = create_app()
    yield app
    app.extensions["flask_bucket"]["bucket"].store.close()


def test_each_command_works_on_the_example_app(example: Flask) -> None:
    run = run_in(example)
    assert get(example, "/report", 3) == [200, 200, 429]
    listed = {route["rule"]: route for route in run("limits", "--json").data["routes"]}
    assert listed["/report"]["limits"][0]["cost"] == 5
    assert listed["/login"]["limits"][0]["conditions"] == ["deduct when is_unauthorized"]
    assert listed["/healthz"]["exempt"]
    assert run("doctor").code == 0
    (bucket,) = run("show", "203.0.113.7", "--json").data["buckets"]
    assert (bucket["scope"], bucket["capacity"], bucket["tokens"]) == ("report", 10, 0)
    assert run("top", "--json").data["buckets"][0]["client"] == "203.0.113.7"
    assert run("reset", "203.0.113.7").out == "Forgot 1 bucket.\n"
    assert run("reset", "--all", "--yes").out == "Forgot 0 buckets.\n"


def test_the_documented_simulation_prints_what_the_page_shows(run: Run, access_log: Path) -> None:
    shown = re.search(r"\$ flask bucket (simulate tests/.*)\n([^`]*)```", PAGE.read_text())
    assert shown is not None
    limits = re.findall(r'--limit "([^"]*)"', shown[1])
    options = [option for limit in limits for option in ("--limit", limit)]
    assert run("simulate", access_log, *options).out == shown[2]
    report = re.search(r"With `--json`:\n\n```json\n([^`]*)```", PAGE.read_text())
    assert report is not None
    options = ["--limit", "30/minute", "--json"]
    assert run("simulate", access_log, *options).data == json.loads(report[1])


def test_every_format_is_documented() -> None:
    rows = "".join(re.findall(r"^\| (`.*?) \|", PAGE.read_text(), re.MULTILINE))
    assert {name for name in formats() if f"`{name}`" not in rows} == set()


def test_every_code_of_the_doctor_is_documented() -> None:
    sources = Path(flask_bucket.cli.__file__).parent.glob("*_checks.py")
    found = {code for source in sources for code in re.findall(r'"(FB\d+)"', source.read_text())}
    assert found == set(re.findall(r"^\| (FB\d+) \|", PAGE.read_text(), re.MULTILINE))


def test_every_option_is_documented() -> None:
    page = PAGE.read_text()
    options = {
        option
        for command in flask_bucket.cli.bucket.commands.values()
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--")
    }
    assert {option for option in options if option not in page} == set()
