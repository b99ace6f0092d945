"""docs/migration.md names everything public in the Flask-Limiter that is installed."""

from __future__ import annotations

import dataclasses
import inspect
import re
from importlib.metadata import version

import flask_limiter
import pytest
from flask import Flask
from flask_limiter import ExemptionScope, HeaderNames, Limiter, util
from flask_limiter.commands import cli
from flask_limiter.constants import ConfigVars
from flask_limiter.contrib import util as contrib

from flask_bucket import Limiter as OurLimiter
from flask_bucket.config import Config
from flask_bucket.moving import ARGUMENTS, ATTRIBUTES, KEYS, OF_LIMIT
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")


def rows(heading: str) -> dict[str, str]:
    """Return the first two columns of the table below a heading."""
    section = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    (text,) = [part for part in section if part.startswith(heading + "\n")]
    return dict(re.findall(r"^\| `([^`]+)` \| ([^|]+?) \|", text, re.MULTILINE))


def parameters(function: object) -> set[str]:
    return set(inspect.signature(function).parameters) - {"self"}  # type: ignore[arg-type]


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def fields(kind: type) -> set[str]:
    names = {field.name for field in dataclasses.fields(kind)}
    return names | public(kind) | parameters(kind)


def functions(module: object) -> set[str]:
    name = module.__name__  # type: ignore[attr-defined]
    return {
        f"{name.removeprefix('flask_limiter.')}.{function}"
        for function, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == name
    }


def of_request_limit() -> set[str]:
    kind = flask_limiter.RequestLimit
    set_there = re.findall(r"self\.([a-z]\w*)\b[^=\n]*= ", inspect.getsource(kind.__init__))
    return public(kind) | set(set_there)


def of_error() -> set[str]:
    source = inspect.getsource(flask_limiter.RateLimitExceeded.__init__)
    return set(re.findall(r"self\.(\w+) =", source))


def commands() -> set[str]:
    names = set()
    for name, command in cli.commands.items():
        names.add(f"flask limiter {name}")
        names |= {f"flask limiter {name} {parameter.opts[0]}" for parameter in command.params}
    return names


TABLES = {
    "Constructor": parameters(Limiter.__init__),
    "`limit` and `shared_limit`": parameters(Limiter.limit) | parameters(Limiter.shared_limit),
    "`exempt` and `request_filter`": (
        parameters(Limiter.exempt) | parameters(Limiter.request_filter)
    ),
    "Attributes and methods": public(Limiter(lambda: "client")),
    "Classes": set(flask_limiter.__all__) | functions(util) | functions(contrib),
    "`Limit`, `RouteLimit`, `ApplicationLimit` and `MetaLimit`": (
        fields(flask_limiter.Limit)
        | fields(flask_limiter.RouteLimit)
        | fields(flask_limiter.ApplicationLimit)
        | fields(flask_limiter.MetaLimit)
    ),
    "`RequestLimit`": of_request_limit(),
    "`RateLimitExceeded`": of_error(),
    "`ExemptionScope` and `HeaderNames`": (
        ({member.name or "" for member in ExemptionScope}) | {member.name for member in HeaderNames}
    ),
    "Configuration keys": {
        value for name, value in vars(ConfigVars).items() if not name.startswith("_")
    },
    "Commands": commands(),
}


def test_the_page_speaks_of_the_version_that_is_installed() -> None:
    installed = ".".join(version("flask-limiter").split(".")[:2])
    assert f"Flask-Limiter\n{installed}" in PAGE or f"Flask-Limiter {installed}" in PAGE


@pytest.mark.parametrize("heading", TABLES)
def test_a_table_has_all_names_of_flask_limiter_and_no_others(heading: str) -> None:
    assert set(rows(heading)) == TABLES[heading]


OURS = parameters(OurLimiter.__init__) | parameters(OurLimiter.limit) | public(OurLimiter)


@pytest.mark.parametrize(
    "heading",
    ["Constructor", "`limit` and `shared_limit`", "Attributes and methods", "Configuration keys"],
)
def test_what_stands_beside_them_exists_here(heading: str) -> None:
    keys = {f"BUCKET_{field.name.upper()}" for field in dataclasses.fields(Config)}
    for ours in rows(heading).values():
        for code in re.findall(r"`([^`]+)`", ours):
            name = re.split(r"[^\w]", code.removeprefix("limiter."))[0]
            assert name in OURS | keys | ELSEWHERE, code


#: Names of the tables' second column that are no names of ours.
ELSEWHERE = {"logging", "request", "current_app", "flask", "Rule", "Retry"}

#: Flask-Limiter's names that have no counterpart.
WINDOWS = {"strategy", "RATELIMIT_STRATEGY"}
INTERNAL = {
    "finalized",
    "parent_limit",
    "limit_by",
    "bind",
    "bind_parent",
    "initialized",
    "limiter",
}


@pytest.mark.parametrize("heading", sorted(TABLES.keys() - {"Commands"}))
def test_only_windows_and_internals_have_no_counterpart(heading: str) -> None:
    without = {name for name, ours in rows(heading).items() if ours == "none"}
    assert without <= WINDOWS | INTERNAL


@pytest.mark.parametrize(
    ("heading", "told"), [("Constructor", ARGUMENTS), ("`limit` and `shared_limit`", OF_LIMIT)]
)
def test_whoever_writes_an_argument_that_is_not_ours_is_told(
    heading: str, told: dict[str, str]
) -> None:
    assert TABLES[heading] - OURS <= told.keys()


def test_whoever_reads_an_attribute_that_is_not_ours_is_told() -> None:
    assert TABLES["Attributes and methods"] - OURS <= ATTRIBUTES.keys()


def test_whoever_leaves_a_key_over_is_told() -> None:
    keys = {key.removeprefix("RATELIMIT_") for key in TABLES["Configuration keys"]}
    assert keys <= KEYS.keys()


def test_every_command_of_ours_exists() -> None:
    bucket = pytest.importorskip("flask_bucket.cli").bucket
    for command in re.findall(r"flask bucket ([a-z]+)((?: --[a-z]+)*)", PAGE):
        assert command[0] in bucket.commands
        known = {opt for parameter in bucket.commands[command[0]].params for opt in parameter.opts}
        assert set(command[1].split()) <= known


def test_both_can_be_in_one_app() -> None:
    app = Flask("shop")
    Limiter(lambda: "client", app=app, storage_uri="memory://", default_limits=["1/minute"])
    OurLimiter(app, default_limits="2/minute")
    app.add_url_rule("/", view_func=lambda: "served", endpoint="index")
    client = app.test_client()
    assert [client.get("/").status_code for _ in range(2)] == [200, 429]
