"""The soak, for some seconds; ``nox -s soak`` runs it for ten minutes."""

from __future__ import annotations

import os
import random

import pytest

from tests.outage.soak import Soak

SECONDS = float(os.environ.get("SOAK_SECONDS", "6"))


@pytest.mark.timeout(SECONDS + 120)
def test_faults_at_random_leave_nothing_behind() -> None:
    soak = Soak(SECONDS, random.Random(1)).run()
    assert not soak.complaints, soak.report()
