"""A behaviour, and how it is broken."""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutation.faults.fault import Edit


@dataclass(frozen=True)
class Behaviour:
    area: str
    #: The behaviour that is broken.
    name: str
    module: str
    edits: tuple[Edit, ...]
    #: Test files and folders, or single tests where a file takes long.
    tests: tuple[str, ...]


def broken(area: str, name: str, module: str, old: str, new: str, *tests: str) -> Behaviour:
    return Behaviour(area, name, module, ((old, new),), tests)
