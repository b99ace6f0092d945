"""Let mutmut change the stores that wrap a store, and look for changes that no test notices.

    python -m tests.mutation.wrapping [--jobs 2]

mutmut changes one operator, constant or argument at a time, some hundreds in all, and runs the
tests of these stores on each. This prints the changes that no test noticed, and fails if there
are any but those that change nothing.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]

STORES = ("refusals", "breaker", "attempts", "outage")
TESTS = ("tests/refusals", "tests/outage/policies", "tests/ext/at_once/test_outage.py")

CONFIGURATION = f"""
[tool.mutmut]
source_paths = ["flask_bucket"]
only_mutate = {[f"flask_bucket/stores/{name}.py" for name in STORES]!r}
also_copy = ["flask_bucket"]
pytest_add_cli_args_test_selection = {list(TESTS)!r}
"""

#: Changed lines that change no behaviour, and why.
HARMLESS = {
    'self._quiet_until = float("-INF")': "the same number",
    "share = Fraction(str(local_share)).limit_denominator(1000001)  # 0.333... is a third": (
        "one of many denominators that would do"
    ),
    "self._scaled = lru_cache(maxsize=None)(partial(share_of, share=share))": "only memory",
    "self._scaled = lru_cache(maxsize=1001)(partial(share_of, share=share))": "only memory",
    "decision = self._attempts.make(breakers, peek, lambda _: None)": "as false",
    "self._end(breaker.succeeded(ticket, wrote=None))": "as false",
    "found = None": "setdefault finds the breaker all the same",
    "if len(breakers) >= 1 and self.seconds_to_next_try(breakers) > 0:": (
        "the breaker of one server says the same when it is entered"
    ),
    "if rate > 1:": "at a rate of 1 both ways make the same limit",
    "if rate >= 2:": "below a rate of 2 both ways make the same limit",
    "return Limit(min(capacity, EXACT // seconds - 2), 1, seconds, limit.name)": (
        "a token less of more than anyone has"
    ),
    "capacity, rate = max(2, int(limit.capacity * share)), limit.rate * share": (
        "so small a share of so slow a limit is cut to 1 below"
    ),
    "seconds = min(ceil(1 / rate), EXACT / 2)": "the same number",
    "seconds = min(ceil(1 / rate), EXACT // 3)": "aeons, both",
    "self.is_connecting = None": "as false",
    "return self._decide(breaker, charges, None, (), now, peek=True)": "a look gives nothing back",
    "return self._decide(breaker, charges, (), None, now, peek=True)": "a look has no dry run",
    "self._changes = 1": "only differences count",
    "self._next_try, self._changes = None, self._changes + 2": "only differences count",
    "self._changes += 2": "only differences count",
    "self._returns = 1": "only differences count",
    "self._returns += 2": "only differences count",
    "self._returns -= 1": "only differences count",
    "self._returns -= returned": "only differences count",
    "clock, now, refusals, counts = self._clock(), 1, [], False": "every store's time is later",
    "if remaining <= cost - 1:": "no more than the cost less one is told",
    "if remaining < cost + 1:": "no more than the cost less one is told",
    "for charge, outcome in zip(charges, decision.outcomes, strict=None):": "as false",
    "for charge, outcome in zip(charges, decision.outcomes, ):": "the default",
}

#: Parts of such lines, where the line is too long for a table.
HARMLESS_PARTS = ("if (local) or True else charges",)  # the same charges


def mutmut(folder: Path, *arguments: str) -> str:
    """Run a command of mutmut in a copy of the project, and return its output."""
    command = [sys.executable, "-m", "mutmut", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"mutmut {' '.join(arguments)} failed:\n{done.stdout[-3000:]}{done.stderr}")
    return done.stdout


def copy(folder: Path) -> None:
    """Copy what the tests need."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("flask_bucket", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (folder / "pyproject.toml").write_text(project + CONFIGURATION, encoding="utf-8")


def changed(folder: Path, mutant: str) -> tuple[str, str]:
    """Return a line before and after a mutant's change."""
    lines = mutmut(folder, "show", mutant).splitlines()
    old = [line[1:].strip() for line in lines if line.startswith("-") and line[:3] != "---"]
    new = [line[1:].strip() for line in lines if line.startswith("+") and line[:3] != "+++"]
    return "\n".join(old), "\n".join(new)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.wrapping")
    parser.add_argument("--jobs", type=int, default=2, help="how many to try at a time")
    arguments = parser.parse_args()
    unnoticed = 0
    with tempfile.TemporaryDirectory(prefix="bucket-mutmut-") as name:
        folder = Path(name)
        copy(folder)
        mutmut(folder, "run", "--max-children", str(arguments.jobs))
        results = [
            line.strip().rpartition(": ")
            for line in mutmut(folder, "results", "--all", "true").splitlines()
            if ": " in line
        ]
        for mutant, _, status in results:
            if status in ("killed", "timeout"):
                continue
            old, new = changed(folder, mutant)
            harmless = new in HARMLESS or any(part in new for part in HARMLESS_PARTS)
            if status == "survived" and harmless:
                continue
            unnoticed += 1
            say(f"{mutant}: {status}\n    {old}\n    {new}")
    say(f"{len(results)} changes of {', '.join(STORES)}, {unnoticed} unnoticed")
    return 1 if unnoticed or not results else 0


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
