"""Processes that tests start to work beside each other."""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext

#: The code that the processes run. It is imported once, and not by each of them.
MODULES = ["tests.property.hammer", "tests.test_main_job"]


def context() -> ForkServerContext:
    """Return what makes processes: forks of one that has no threads, stores or connections."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(MODULES)
    return made
