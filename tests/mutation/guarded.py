"""Behaviours that only one test or two notice: break each, and see that its tests fail.

    python -m tests.mutation.guarded [WORDS] [--jobs 2]

prints which test found each fault, and fails if one was not found. WORDS choose the behaviours
whose names contain them. Each behaviour is broken in a copy of the project, in one way.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutation.__main__ import copied, edited, say
from tests.mutation.behaviours import BEHAVIOURS
from tests.mutation.behaviours.behaviour import Behaviour

SECONDS = 240


def break_it(behaviour: Behaviour, folder: Path) -> None:
    """Copy the project, and break one behaviour in the copy."""
    copied(folder)
    path = folder / "flask_bucket" / behaviour.module
    path.write_text(edited(behaviour.module, path.read_text(), behaviour.edits))


def killer_of(behaviour: Behaviour) -> str | None:
    """Return the test that fails; None if none does."""
    with tempfile.TemporaryDirectory(prefix="bucket-mutant-") as name:
        folder = Path(name)
        break_it(behaviour, folder)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        command += [f"tests/{test}" for test in behaviour.tests]
        # The copy comes before the package that is installed.
        env = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            command,
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    output = done.stdout + done.stderr
    found = re.search(r"^(?:FAILED|ERROR) \S+::(\w+)", output, re.MULTILINE)
    if done.returncode not in (0, 1) or (done.returncode == 1 and not found):
        sys.exit(f"{behaviour.name}: the tests did not run:\n{output}")
    return found[1] if found else None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.guarded")
    parser.add_argument("words", nargs="?", default="", help="only behaviours with these words")
    parser.add_argument("--jobs", type=int, default=2, help="how many to break at a time")
    arguments = parser.parse_args()
    chosen = [one for one in BEHAVIOURS if arguments.words in f"{one.area}: {one.name}"]
    survivors = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        begun = time.monotonic()
        for behaviour, killer in zip(chosen, pool.map(killer_of, chosen), strict=True):
            survivors += killer is None
            say(f"{behaviour.area:10} {behaviour.name:70} {killer or 'SURVIVED'}")
    seconds = time.monotonic() - begun
    say(f"{len(chosen)} behaviours broken in {seconds:.0f} s, {survivors} faults survived")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
