"""The Hypothesis profile, the stores to be tested, and the count of calls at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.property import engines, profiles
from tests.property.engines import NAMES, Subject
from tests.servers import Server

profiles.register()


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--hypothesis-profile"):
        settings.load_profile("short")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/property/" in item.path.as_posix():
            item.add_marker(pytest.mark.timeout(3_600))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if engines.CALLS:
        total = sum(engines.CALLS.values())
        terminalreporter.write_sep("-", f"{total:,} calls to stores")
        for name, calls in engines.CALLS.items():
            version = engines.VERSIONS.get(name, "")
            terminalreporter.write_line(f"{name:10} {calls:>12,}  {version}")


@pytest.fixture
def subjects(servers: dict[str, Server]) -> Iterator[list[Subject]]:
    """A store of every kind that is installed. All get the same calls."""
    made = []
    for name in NAMES:
        # test_this_store_takes_part reports the stores that are missing.
        with contextlib.suppress(pytest.skip.Exception):
            made.append(engines.subject(name, servers))
    yield made
    for one in made:
        engines.close(one)


@pytest.fixture(params=["memory", "valkey"])
def subject(request: pytest.FixtureRequest, servers: dict[str, Server]) -> Iterator[Subject]:
    """The reference in the in-process store, and the script in a real server."""
    made = engines.subject(request.param, servers)
    yield made
    engines.close(made)
