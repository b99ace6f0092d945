"""Fixtures of the outage tests: a world to hurt, and the table of what was measured."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.outage.faults import World
from tests.outage.proxy import Proxy
from tests.outage.service import Stalls
from tests.outage.table import Row, rendered
from tests.servers import Server

#: A file to write the table of the documentation to; nowhere, when unset.
TABLE = os.environ.get("OUTAGE_TABLE")


@pytest.fixture
def world(own_server: Server) -> Iterator[World]:
    """A server of the test's own behind a proxy."""
    with Proxy(own_server.port) as proxy:
        yield World(own_server, proxy)
        own_server.thaw()


@pytest.fixture
def stalls() -> Iterator[Stalls]:
    """How long the machine stood still."""
    with Stalls() as watch:
        yield watch


@pytest.fixture(scope="session")
def table() -> Iterator[list[Row]]:
    """What was measured."""
    rows: list[Row] = []
    yield rows
    if TABLE and rows:
        Path(TABLE).write_text(rendered(rows))
