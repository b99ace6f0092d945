"""Forks: everything that a forked child must make anew, in one place.

A fork copies one thread and leaves out the others: a lock that one of them held is held for ever
in the child, and a cache that one of them was changing is half changed. So each object that has a
lock, a queue, a cache or a connection is watched here, and told in the child.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forked(Protocol):
    """An object that a child must not use as it was in the parent."""

    def after_fork(self) -> None:
        """Begin anew. Called in the child, before anything else runs there."""


#: Mutable and global, because a fork concerns the whole process. It keeps nothing alive.
_watched: WeakSet[Forked] = WeakSet()


def watch(thing: Forked) -> None:
    """Call an object's `after_fork` in each forked child."""
    _watched.add(thing)


def _renew() -> None:
    for thing in tuple(_watched):
        thing.after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no forks
    os.register_at_fork(after_in_child=_renew)
