"""The profiles: a short run by default, a long one with ``--hypothesis-profile=long``."""

from __future__ import annotations

import pytest

from tests.property import profiles

profiles.register()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/histories/" in item.path.as_posix():
            item.add_marker(pytest.mark.timeout(1_800))
