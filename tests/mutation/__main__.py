"""Plant each fault in a copy of the package, and let the property tests look for it.

    python -m tests.mutation [WORDS] [--jobs 2]

prints which test found each fault, and fails if one was not found. WORDS choose the faults whose
names contain them.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tests.mutation.faults import FAULTS
from tests.mutation.faults.fault import LUA, Edit

ROOT = Path(__file__).parents[2]

#: The engines that the hunt runs on: the fast ones.
ENGINES = "memory,valkey"

#: These compare script and reference. They cannot see a fault that both have.
TWINS = ("test_machine.py", "test_small_world.py")
#: These check either of them against an oracle.
PROMISES = ("test_promises.py", "test_refills.py", "test_changes.py", "test_kinds.py")
#: The promises about an area are tried before the others.
ABOUT = {
    "refill": "test_refills.py",
    "clock": "test_changes.py",
    "config change": "test_changes.py",
    "storing": "test_refills.py",
    "ban": "test_kinds.py",
    "up to": "test_kinds.py",
    "slots": "test_kinds.py",
    "reply": "test_kinds.py",
}

SECONDS = 300

#: In each of these areas the state machine itself must find a fault.
BY_THE_MACHINE = {"refill", "clock", "config change", "multi-bucket", "settle"}
MACHINE = "test_every_store_agrees_with_the_reference"


@dataclass(frozen=True)
class Mutant:
    area: str
    name: str
    where: str
    edits: dict[str, tuple[Edit, ...]]
    alike: bool = False


@dataclass(frozen=True)
class Result:
    mutant: Mutant
    #: The test that found it; None if it survived.
    killer: str | None
    seconds: float
    output: str


def mutants() -> Iterator[Mutant]:
    for fault in FAULTS:
        for where, edits in fault.planted().items():
            yield Mutant(fault.area, fault.name, where, edits, fault.alike)


def copied(folder: Path) -> None:
    """Copy the files that the tests need."""
    for name in ("flask_bucket", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)


def plant(mutant: Mutant, folder: Path) -> None:
    """Change a copy of the package."""
    copied(folder)
    for name, edits in mutant.edits.items():
        path = folder / "flask_bucket" / name
        path.write_text(edited(name, path.read_text(), edits))


def edited(name: str, text: str, edits: tuple[Edit, ...]) -> str:
    """Return the text of a file with a fault in it."""
    for old, new in edits:
        if text.count(old) != 1:
            raise ValueError(f"{name} has {text.count(old)} times, not once:\n{old}")
        text = text.replace(old, new)
    # Any test would find a fault that does not compile.
    if name == LUA:
        import_module("lupa.lua51").LuaRuntime().compile(text)
    else:
        compile(text, name, "exec")
    return text


def hunt(mutant: Mutant) -> Result:
    """Run the property tests on a mutant until one fails."""
    promises = sorted(PROMISES, key=lambda test: test != ABOUT.get(mutant.area))
    alike = mutant.where == "both" or mutant.alike
    tests = promises if alike else [*TWINS, *promises]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bucket-mutant-") as name:
        folder = Path(name)
        plant(mutant, folder)
        code, output = _pytest(folder, tests)
    found = re.search(r"^FAILED \S+::(\w+)", output, re.MULTILINE)
    if code not in (0, 1) or (code == 1 and not found):
        sys.exit(f"{mutant.name}: the tests did not run:\n{output}")
    killer = found[1] if found else None
    return Result(mutant, killer, time.monotonic() - begun, output)


def _pytest(folder: Path, tests: list[str]) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["--hypothesis-profile=mutants", *(f"tests/property/{test}" for test in tests)]
    # The copy comes before the package that is installed.
    env = {**os.environ, "PYTHONPATH": str(folder), "PROPERTY_ENGINES": ENGINES}
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    where = subprocess.run(
        [sys.executable, "-c", "import flask_bucket; print(flask_bucket.__file__)"],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert where.startswith(str(folder.resolve())), where
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    return done.returncode, done.stdout + done.stderr


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("words", nargs="?", default="", help="only faults named with these words")
    parser.add_argument("--jobs", type=int, default=2, help="how many to hunt at a time")
    parser.add_argument("--show", action="store_true", help="print what pytest said of each")
    arguments = parser.parse_args()
    chosen = [mutant for mutant in mutants() if arguments.words in f"{mutant.area}: {mutant.name}"]
    results = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        unharmed = pool.submit(hunt, Mutant("", "none", "nowhere", {}))
        for result in pool.map(hunt, chosen):
            results.append(result)
            report(result)
            if arguments.show:
                say(result.output)
    if unharmed.result().killer is not None:
        sys.exit(f"Without a fault the tests fail too:\n{unharmed.result().output}")
    survivors = [result for result in results if result.killer is None]
    say(f"{len(chosen)} mutants of {len(FAULTS)} faults, {len(survivors)} survived")
    unseen = set() if arguments.words else BY_THE_MACHINE - areas_of(results, MACHINE)
    if unseen:
        say(f"The state machine found no fault in: {', '.join(sorted(unseen))}")
    return 1 if survivors or unseen else 0


def areas_of(results: list[Result], killer: str) -> set[str]:
    """Return the areas in which a test found a fault."""
    return {result.mutant.area for result in results if result.killer == killer}


def report(result: Result) -> None:
    mutant = result.mutant
    verdict = result.killer or "SURVIVED"
    say(f"{mutant.area:14} {mutant.name:58} {mutant.where:10} {result.seconds:5.1f} s  {verdict}")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
