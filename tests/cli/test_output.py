"""What the commands print: for people at a terminal, for pipes, for programs."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from flask_bucket.cli import output
from flask_bucket.cli.layout import Table, laid_out
from flask_bucket.cli.output import coloured, counted, duration
from tests.cli.conftest import line, run_in

TABLE = Table(
    "Title:",
    ("client", "tokens"),
    [("[red]alice", "1,000"), ("b\x1b[1mob", "2")],
    frozenset(("tokens",)),
    ("red", ""),
)


#: Rows of the kinds that the commands have, none of which fits 80 columns as it is.
WIDE = Table(
    "",
    ("route", "method", "limit", "key", "wait"),
    [
        (
            "/api/v1/customers/<int:customer>/orders/<int:order>/invoices",
            "GET",
            "30 per 15 minutes burst 60 from a function",
            "request_header('X-API-Key')",
            "22 min 19 s",
        ),
        ("", "", "5/second", "client_address", "1 s"),
        ("/search", "GET", "1000/day", "client_address", "-"),
    ],
    frozenset(("wait",)),
    paths=frozenset(("route",)),
)


def text_of(table: Table, width: int | None = None) -> str:
    return "\n".join(line.text for line in laid_out(table, width))


def words_of(table: Table) -> set[str]:
    return {word for row in table.rows for cell in row for word in cell.split()}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "never"),
        (0, "now"),
        (0.0000001, "1 ms"),
        (0.35, "350 ms"),
        (0.9996, "1 s"),
        (1, "1 s"),
        (4.24, "4.2 s"),
        (59.96, "1 min"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (86_399.9, "1 d"),
        (90_000, "1 d 1 h"),
        (90_000_000, "1,041 d 16 h"),
    ],
)
def test_durations_are_said_in_two_units_at_most(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_numbers_are_said_with_their_things() -> None:
    assert counted(1, "bucket") == "1 bucket"
    assert counted(2000, "bucket") == "2,000 buckets"
    assert counted(0, "route has", "routes have") == "0 routes have"


def test_a_pipe_gets_aligned_columns() -> None:
    assert text_of(TABLE) == ("Title:\nCLIENT      TOKENS\n[red]alice   1,000\nb\\x1b[1mob       2")


def test_a_terminal_has_the_same_headings_as_a_pipe() -> None:
    pipe, terminal = text_of(TABLE), text_of(TABLE, 80)
    assert pipe == terminal


@pytest.mark.parametrize("group", [0, 2])
@pytest.mark.parametrize("width", [100, 80, 70, 60])
def test_a_table_fits_a_terminal_without_breaking_a_word(width: int, group: int) -> None:
    table = replace(WIDE, group=group)
    lines = text_of(table, width).splitlines()
    assert max(map(len, lines)) <= width
    whole = {word for line in lines for word in line.split()}
    in_paths = {word for word in words_of(table) if word.startswith("/api")}
    assert words_of(table) - in_paths - {"-"} <= whole


def test_a_path_is_wrapped_after_a_slash() -> None:
    lines = text_of(WIDE, 100).splitlines()
    first = [line[:40].split("  ")[0].strip() for line in lines[1:4]]
    assert "".join(first).startswith("/api/v1/customers/<int:customer>/")
    assert all(part.endswith("/") for part in first[:1])


def test_long_first_columns_stand_above_what_belongs_to_them() -> None:
    lines = text_of(replace(WIDE, group=2), 70).splitlines()
    assert lines[0] == "ROUTE  METHOD"
    assert lines[2] == "/api/v1/customers/<int:customer>/orders/<int:order>/invoices  GET"
    assert lines[3].startswith("  30 per")
    assert [line for line in lines if line.startswith("/")][1] == "/search  GET"


def test_rows_that_fit_in_no_other_way_become_blocks() -> None:
    lines = text_of(WIDE, 62).splitlines()
    assert lines[2] == "METHOD  GET"
    assert "KEY     request_header('X-API-Key')" in lines
    assert "" in lines


def test_numbers_are_not_wrapped() -> None:
    assert "22 min 19 s" in text_of(replace(WIDE, group=2), 80)


def test_wide_characters_are_counted_as_wide() -> None:
    table = Table("", ("client", "n"), [("\u5317\u4eac", "1"), ("abcd", "2")])
    assert text_of(table).splitlines()[1:] == ["\u5317\u4eac    1", "abcd    2"]


def test_nothing_that_clients_choose_steers_the_terminal() -> None:
    rich_console = pytest.importorskip("rich.console")
    console = rich_console.Console(file=io.StringIO(), force_terminal=True, width=60)
    console.print(coloured(laid_out(TABLE, 60)))
    drawn = console.file.getvalue()
    assert "[red]alice" in drawn
    assert "\x1b[1mob" not in drawn
    assert "\x1b[31m" in drawn  # the row's own style


def test_without_rich_a_terminal_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert output.wants_colours()
    monkeypatch.setitem(sys.modules, "rich", None)
    assert not output.wants_colours()


def at_a_terminal(*arguments: str, width: int = 100) -> str:
    """Run ``flask bucket`` with a terminal for its output."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(width)}
    environment.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "flask", "bucket", *arguments]
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    seen = b""
    try:
        while block := os.read(ours, 65536):
            seen += block
    except OSError:
        pass  # how the end of a terminal is told
    os.close(ours)
    assert process.wait(30) == 0
    return seen.decode()


def test_a_terminal_gets_colours(write_log: Callable[..., Path]) -> None:
    pytest.importorskip("rich")
    seen = at_a_terminal("simulate", str(write_log(*[line()] * 7)), "--limit", "5/minute")
    assert "LIMIT     REFUSED" in seen
    assert "\x1b[1m" in seen


def test_sentences_end_their_lines_between_words(write_log: Callable[..., Path]) -> None:
    said = "a line of several long words that is not one of an access log in any format"
    log = write_log(*[line()] * 7, said)
    seen = at_a_terminal("simulate", str(log), "--limit", "5/minute", width=70)
    sentence = seen.partition("The first malformed")[2].partition("LIMIT")[0].split("\r\n")
    assert len(sentence) > 2
    assert max(map(len, sentence[2:])) <= 70
    assert repr(said) in " ".join(sentence)


def test_items_of_a_list_are_indented_where_they_are_wrapped() -> None:
    text = "- What deduct_when returns: it is asked"
    assert output.wrapped(text, 24, "  ") == "- What deduct_when\n  returns: it is asked"
    assert output.wrapped("a-very-long-word", 5) == "a-very-long-word"
    assert output.wrapped(text, None) == text


def test_a_long_log_shows_how_far_it_is(
    write_log: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = io.StringIO()
    monkeypatch.setattr(seen, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", seen)
    module: Any = sys.modules["flask_bucket.cli.simulate"]
    monkeypatch.setattr(module, "_LONG", 1)
    with write_log(line()).open("rb") as log, module._progress(log) as advance:
        advance(30)
    assert "Reading access.log" in seen.getvalue()


def test_an_application_that_is_set_up_wrong_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        "from flask import Flask\nfrom flask_bucket import Limiter\n"
        "app = Flask(__name__)\napp.config['BUCKET_TIMEOUT'] = -1\nLimiter(app)\n"
    )
    command = [sys.executable, "-m", "flask", "--app", "wrong", "bucket", "limits"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "BUCKET_TIMEOUT" in done.stderr


def test_an_application_that_cannot_be_imported_is_one_line_with_the_place(tmp_path: Path) -> None:
    (tmp_path / "moving.py").write_text("import os\nimport flask_bucket.util\n")
    command = [sys.executable, "-m", "flask", "--app", "moving", "bucket", "limits"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert "was raised: ImportError: flask_bucket has no util." in done.stderr
    assert done.stderr.endswith(f"({tmp_path / 'moving.py'}, line 2)\n")


def test_without_an_application_those_that_need_one_say_so(tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FLASK_")}
    command = [sys.executable, "-m", "flask", "bucket", "limits"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "--app" in done.stderr


def test_an_unknown_command_is_one_clear_line() -> None:
    said = run_in(Flask(__name__))("frobnicate")
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)


def test_the_help_says_what_each_command_does_in_a_whole_sentence(app: Flask) -> None:
    said = run_in(app)("--help").out.partition("Commands:")[2].strip().splitlines()
    assert len(said) == 8
    assert [text for text in said if not text.endswith(".") or text.endswith("...")] == []
