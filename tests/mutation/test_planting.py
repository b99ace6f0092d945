"""Each fault that is planted changes text that the source still has."""

from __future__ import annotations

from collections.abc import Iterator

from tests.mutation.__main__ import ROOT, edited, mutants
from tests.mutation.behaviours import BEHAVIOURS
from tests.mutation.faults.fault import Edit


def planted() -> Iterator[tuple[str, str, tuple[Edit, ...]]]:
    """Yield the name, the module and the edits of each fault."""
    for mutant in mutants():
        for module, edits in mutant.edits.items():
            yield mutant.name, module, edits
    for behaviour in BEHAVIOURS:
        yield behaviour.name, behaviour.module, behaviour.edits


def test_no_planted_fault_is_out_of_date() -> None:
    stale = []
    for name, module, edits in planted():
        text = (ROOT / "flask_bucket" / module).read_text(encoding="utf-8")
        try:
            assert edited(module, text, edits) != text, name
        except ValueError as error:
            stale.append(f"{name}: {error}")
    assert not stale


def test_the_tests_of_each_behaviour_exist() -> None:
    for behaviour in BEHAVIOURS:
        for test in behaviour.tests:
            path, _, name = test.partition("::")
            place = ROOT / "tests" / path
            assert place.exists(), test
            assert not name or f"def {name}(" in place.read_text(encoding="utf-8"), test
