"""Fixtures of the outage tests: a world to hurt, and the table of what was measured."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.outage.faults import World
from tests.outage.proxy import Proxy
from tests.outage.service import Stalls
from tests.outage.table import Row, rendered
from tests.servers import Server, TlsServer, system_binary

#: A file to write the table of the documentation to; nowhere, when unset.
TABLE = os.environ.get("OUTAGE_TABLE")


@pytest.fixture
def world(own_server: Server) -> Iterator[World]:
    """The test's own server, reached through a proxy."""
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
    """The rows that were measured."""
    rows: list[Row] = []
    yield rows
    if TABLE and rows:
        Path(TABLE).write_text(rendered(rows))


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def tls_server(
    authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TlsServer]:
    folder = tmp_path_factory.mktemp("tls")
    issued = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    paths = (folder / name for name in ("ca.pem", "cert.pem", "key.pem"))
    server = TlsServer(system_binary(), *paths)
    try:
        yield server.start()  # type: ignore[misc]  # itself
    finally:
        server.stop()
