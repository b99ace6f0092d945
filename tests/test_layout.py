"""Imports point one way, as the map in CONTRIBUTING.md says."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "flask_bucket"
MODULES = sorted(p for p in PACKAGE.rglob("*.py") if p.name != "__init__.py")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def imported(path: Path) -> set[str]:
    """Return the modules that a file imports when it is loaded, in full."""
    found: set[str] = set()
    package = path.relative_to(ROOT).parent.parts
    for node in _loaded(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) + 1 - node.level]) if node.level else ""
            module = ".".join(filter(None, (base, node.module)))
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return found


def _loaded(tree: ast.AST) -> list[ast.AST]:
    """Return the nodes that run on import: not those in functions or for type checkers."""
    nodes: list[ast.AST] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        nodes += [node, *_loaded(node)]
    return nodes


@cache
def ours(path: Path) -> set[Path]:
    """Return the files of the package that a file imports."""
    files = {ROOT / Path(*module.split(".")).with_suffix(".py") for module in imported(path)}
    return files & set(MODULES)


@cache
def places() -> list[Path]:
    """Return the files and folders of the map, from the ground up."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("## The map")[2].partition("## Tests")[0]
    rows = re.findall(r"^\| (`flask_bucket.*?) \|", table, re.MULTILINE)
    return [ROOT / path for row in rows for path in re.findall("`(.*?)`", row)]


def floor(path: Path) -> int:
    """Return the row of the map that a module is in."""
    return next(n for n, place in enumerate(places()) if place in (path, *path.parents))


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_a_module_imports_only_modules_above_it_in_the_map(path: Path) -> None:
    above = {name(other) for other in ours(path) if floor(other) > floor(path)}
    assert above == set()


def test_no_imports_go_in_a_circle() -> None:
    graph = {path: ours(path) for path in MODULES}
    while leaves := [path for path, needs in graph.items() if not needs & graph.keys()]:
        for path in leaves:
            del graph[path]
    assert {name(path) for path in graph} == set()


@pytest.mark.parametrize("path", sorted((PACKAGE / "stores").rglob("*.py")), ids=name)
def test_no_store_knows_flask(path: Path) -> None:
    """Neither itself nor through a module that it imports."""
    seen: set[Path] = set()
    waiting = {path}
    while waiting:
        seen |= waiting
        waiting = {other for p in waiting for other in ours(p)} - seen
    libraries = {module.partition(".")[0] for p in seen for module in imported(p)}
    assert libraries.isdisjoint({"flask", "werkzeug"})


def test_only_the_redis_store_knows_redis() -> None:
    knowing = {
        path
        for path in MODULES
        if {"redis", "hiredis"} & {module.partition(".")[0] for module in imported(path)}
    }
    assert all(PACKAGE / "stores" / "redis" in path.parents for path in knowing)
