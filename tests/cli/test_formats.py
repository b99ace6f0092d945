"""A sample of each format of logs, and what is read from it."""

from __future__ import annotations

import importlib
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from flask_bucket.cli import stamps
from flask_bucket.cli.formats import Entry, formats
from flask_bucket.cli.logs import Log, UnreadableLogError, blocks
from tests.servers import missing

#: Two requests in each format, as its servers write them: one from 203.0.113.7 at 10:05:03 UTC,
#: and one from 2001:db8::7 a second later. A file is named for its format, and its server.
SAMPLES = {
    path.name.removesuffix(".log"): path.read_text()
    for path in sorted((Path(__file__).parents[1] / "data" / "logs").iterdir())
}

#: What may stand before each line of another format.
PREFIXES = {
    "docker compose": "web-1  | ",
    "docker compose in colours": "\x1b[36mweb-1  | \x1b[0m",
    "docker compose -t": "web-1  | 2024-05-17T10:05:03.123456789Z ",
    "docker -t": "2024-05-17T10:05:03.123456789Z ",
    "kubectl --prefix": "[pod/web-5d9c/web] ",
    "a container runtime": "2024-05-17T10:05:03.123456789+02:00 stdout F ",
    "journald": "May 17 10:05:03 web1 gunicorn[812]: ",
    "journald -o short-iso": "2024-05-17T10:05:03+0000 web1 gunicorn[812]: ",
    "journald -o short-precise": "May 17 10:05:03.123456 web1 gunicorn[812]: ",
    "journald -o short-full": "Fri 2024-05-17 10:05:03 CEST web1 gunicorn[812]: ",
    "journald -o with-unit": "Fri 2024-05-17 10:05:03 UTC web1 shop@1.service[812]: ",
    "journald -o short-unix": "1715940303.123456 web1 gunicorn[812]: ",
    "journald -o short-monotonic": "[ 8123.123456] web1 gunicorn[812]: ",
    "docker service logs": "shop_web.1.k2lsx0@web1    | ",
    "heroku logs": "2024-05-17T10:05:03.123456+00:00 app[web.1]: ",
    "rsyslog": "2024-05-17T10:05:03.123456+00:00 web1 caddy: ",
    "syslog": "<134>May  7 10:05:03 web1 nginx: ",
    "syslog, RFC 5424": "<134>1 2024-05-17T10:05:03.123Z web1 nginx 812 access - ",
    "Python's logging": "INFO:werkzeug:",
}


#: Two lines of uvicorn, by their seconds.
UVICORN = {
    3: 'INFO:     203.0.113.7:50001 - "GET / HTTP/1.1" 200 OK\n',
    4: 'INFO:     2001:db8::7:50002 - "GET / HTTP/1.1" 401 Unauthorized\n',
}


def read(text: str, log_format: str | None = None) -> tuple[Log, list[Entry]]:
    log = Log("the log", log_format)
    lines = blocks("the log", io.BytesIO(text.encode()), lambda size: None)
    return log, list(log.entries(lines))


def at(second: int) -> int:
    return round(datetime(2024, 5, 17, 10, 5, second, tzinfo=UTC).timestamp()) * 1_000_000


def brief(entries: list[Entry]) -> list[tuple[str, int | None, str]]:
    return [(e.address.decode(), e.at, e.status.decode()) for e in entries]


EXPECTED = [("203.0.113.7", at(3), "200"), ("2001:db8::7", at(4), "401")]


@pytest.mark.parametrize("name", SAMPLES)
def test_each_format_is_found_and_read(name: str) -> None:
    log, entries = read(SAMPLES[name])
    assert brief(entries) == EXPECTED
    assert log.malformed == 0
    assert b"GET" in entries[0].request
    assert b"/search" in entries[0].request
    assert b"POST" in entries[1].request
    assert b"/login" in entries[1].request


@pytest.mark.parametrize("name", SAMPLES)
def test_each_format_can_be_named(name: str) -> None:
    _, entries = read(SAMPLES[name], name.partition(".")[0])
    assert brief(entries) == EXPECTED


@pytest.mark.parametrize(
    "name", ["common", "combined", "vhost_combined", "json", "json.nginx", "json.traefik"]
)
def test_users_are_read_where_a_format_has_them(name: str) -> None:
    _, entries = read(SAMPLES[name])
    assert entries[0].user in (b"", b"-")
    assert entries[1].user == b"alice"


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("name", ["combined", "json", "alb", "werkzeug"])
def test_what_stands_before_each_line_is_left_out(prefix: str, name: str) -> None:
    lines = SAMPLES[name].splitlines()
    log, entries = read("".join(f"{PREFIXES[prefix]}{line}\n" for line in lines))
    assert brief(entries) == EXPECTED
    assert log.malformed == 0


def test_dockers_own_files_are_unwrapped() -> None:
    _, entries = read(
        '{"log":"203.0.113.7 - - [17/May/2024:10:05:03 +0000] \\"GET / HTTP/1.1\\" 200 5\\n",'
        '"stream":"stdout","time":"2024-05-17T10:05:03.1Z"}\n'
        '{"log":"Booting\\n","stream":"stdout"}\n'
    )
    assert brief(entries) == EXPECTED[:1]


@pytest.mark.parametrize(
    "prefix",
    [
        "web-1  | 2024-05-17T10:05:0{}Z ",
        "2024-05-17 10:05:0{},000 ",
        "2024-05-17T12:05:0{}+0200 web1 uvicorn[812]: ",
        "Fri 2024-05-17 10:05:0{} UTC web1 uvicorn[812]: ",
        "Fri 2024-05-17 07:05:0{} -03 web1 uvicorn[812]: ",
        "171594030{}.000000 web1 uvicorn[812]: ",
    ],
)
def test_lines_of_uvicorn_have_the_time_of_their_prefix(prefix: str) -> None:
    _, entries = read("".join(prefix.format(n) + text for n, text in UVICORN.items()))
    assert brief(entries) == EXPECTED


@pytest.mark.parametrize("prefix", ["{} 10:05:0{} web1 uvicorn[812]: ", "<134>{} 10:05:0{} web: "])
def test_lines_of_uvicorn_after_classic_syslog_are_of_the_last_such_day(prefix: str) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    day = f"{yesterday:%b} {yesterday.day:2d}"
    log, entries = read("".join(prefix.format(day, n) + text for n, text in UVICORN.items()))
    first = yesterday.replace(hour=10, minute=5, second=3, microsecond=0)
    assert [e.at for e in entries] == [round((first.timestamp() + n) * 1e6) for n in (0, 1)]
    assert log.malformed == 0


@pytest.mark.parametrize(
    ("stamp", "now", "year"),
    [
        ("May 17 10:05:03", "2024-05-17T10:05:02", 2024),
        ("May 18 10:05:03", "2024-05-17T10:05:02", 2023),
        ("Dec 31 23:59:59.123", "2025-01-01T00:00:10", 2024),
        ("Feb 29 10:05:03", "2103-02-01T00:00:00", 2096),
        ("Feb 30 10:05:03", "2024-05-17T10:05:02", None),
        ("Mai  7 10:05:03", "2024-05-17T10:05:02", None),
    ],
)
def test_a_time_without_a_year_is_of_the_last_such_day(
    stamp: str, now: str, year: int | None
) -> None:
    at = stamps.syslog(stamp.encode(), datetime.fromisoformat(now + "+00:00"))
    assert (None if at is None else datetime.fromtimestamp(at / 1e6, UTC).year) == year


@pytest.mark.parametrize("mark", ["", "\x1e", "data: "], ids=["json", "json-seq", "json-sse"])
@pytest.mark.parametrize("kind", [str, lambda text: list(text.encode())], ids=["text", "bytes"])
def test_entries_of_the_journal_in_json_are_unwrapped(mark: str, kind: Any) -> None:
    times = {n: f"{at(n)}" for n in UVICORN}
    entries = [
        {"__REALTIME_TIMESTAMP": times[n], "PRIORITY": "6", "MESSAGE": kind(text.rstrip())}
        for n, text in UVICORN.items()
    ]
    _, found = read("".join(f"{mark}{json.dumps(entry)}\n" for entry in entries))
    assert brief(found) == EXPECTED


def test_a_wrapped_line_may_have_a_prefix_of_its_own() -> None:
    _, entries = read(
        '{"MESSAGE":"INFO:werkzeug:'
        + SAMPLES["werkzeug"].split("\n")[0].replace('"', '\\"')
        + '"}\n'
    )
    assert brief(entries) == EXPECTED[:1]


@pytest.mark.parametrize(
    "text",
    [
        '{\n\t"__REALTIME_TIMESTAMP" : "1715940303000000",\n\t"MESSAGE" : "GET"\n}\n',
        "__CURSOR=s=1\n__REALTIME_TIMESTAMP=1715940303000000\nMESSAGE=GET\n\n",
        "Fri 2024-05-17 10:05:03.1 UTC [s=1]\n    _BOOT_ID=1\n    MESSAGE=GET\n",
    ],
    ids=["json-pretty", "export", "verbose"],
)
def test_a_journal_with_several_lines_an_entry_is_told_how_to_write_one(text: str) -> None:
    with pytest.raises(UnreadableLogError, match="journalctl -o short-iso or -o json"):
        read(text)


def test_what_journalctl_notes_between_lines_is_not_malformed() -> None:
    prefix = PREFIXES["journald"]
    lines = [prefix + line for line in SAMPLES["combined"].splitlines()]
    log, entries = read(
        "\n".join(["-- Journal begins at Fri 2024-05-17. --", *lines, "-- Boot 5 --"])
    )
    assert (len(entries), log.malformed) == (2, 0)


def test_a_log_of_uvicorn_without_times_is_told_what_it_lacks() -> None:
    with pytest.raises(UnreadableLogError, match="docker compose logs -t"):
        read('INFO:     203.0.113.7:50001 - "GET / HTTP/1.1" 200 OK\n' * 3)


def test_fractions_of_a_second_are_kept() -> None:
    line = '{"ts":1715940303.25,"request":{"client_ip":"203.0.113.7"},"status":200}\n'
    assert read(line)[1][0].at == at(3) + 250_000


@pytest.mark.parametrize(
    "time",
    ["1715940303", "1715940303000", "1715940303000000", "1715940303000000000", '"1715940303.0"'],
)
def test_the_size_of_a_number_tells_its_unit(time: str) -> None:
    assert read(f'{{"ts":{time},"remote_ip":"203.0.113.7"}}\n')[1][0].at == at(3)


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "{}",
        '{"ts":true,"remote_ip":"203.0.113.7"}',
        '{"ts":1e400,"remote_ip":"203.0.113.7"}',
        '{"ts":-5,"remote_ip":"203.0.113.7"}',
        '{"ts":"yesterday","remote_ip":"203.0.113.7"}',
        '{"ts":"33/May/2024:10:05:03 +0000","remote_ip":"203.0.113.7"}',
        '{"ts":"17/May/2024","remote_ip":"203.0.113.7"}',
        '{"ts":1715940303,"remote_ip":7}',
        '{"a":' * 100_000,
        '{"ts":' + "9" * 5000 + ',"remote_ip":"203.0.113.7"}',
        '{"log":7}',
        '{"log":"\\ud800"}',
    ],
)
def test_json_that_is_no_request_is_malformed(line: str) -> None:
    log, entries = read(SAMPLES["json"] * 2 + line + "\n")
    assert (len(entries), log.malformed) == (4, 1)


@pytest.mark.parametrize("name", ["common", "combined", "vhost_combined"])
def test_apaches_formats_are_read_as_apachelogs_reads_them(name: str) -> None:
    try:
        apachelogs = importlib.import_module("apachelogs")
    except ImportError:
        missing("apachelogs")
    parser = apachelogs.LogParser(getattr(apachelogs, name.upper()))
    expected = [parser.parse(line) for line in SAMPLES[name].splitlines()]
    _, entries = read(SAMPLES[name])
    for entry, other in zip(entries, expected, strict=True):
        assert entry.address.decode() == other.remote_host
        assert entry.at == round(other.request_time.timestamp() * 1_000_000)
        assert entry.request.decode() == other.request_line
        assert int(entry.status) == other.final_status


def test_every_format_has_a_sample() -> None:
    assert set(formats()) == {name.partition(".")[0] for name in SAMPLES} | {"uvicorn"}


def test_the_first_malformed_line_is_known_by_its_number() -> None:
    log, _ = read(SAMPLES["common"] + "what is this?\n" + "and this?\n")
    assert log.first == (3, b"what is this?")
    assert log.first_malformed() == "line 3 of the log: 'what is this?'"


def test_a_long_malformed_line_is_cut_and_steers_no_terminal() -> None:
    log, _ = read(SAMPLES["common"] + "\x1b[31m" + "x" * 10_000 + "\n")
    assert len(log.first_malformed()) < 150
    assert "\x1b" not in log.first_malformed()


def test_a_log_that_is_mostly_malformed_is_an_error() -> None:
    with pytest.raises(UnreadableLogError, match="3 of 5 lines are not requests") as caught:
        read(SAMPLES["common"] + "one\ntwo\nthree\n")
    assert "line 3 of the log: 'one'" in str(caught.value)


def test_a_log_in_another_format_than_was_said_is_an_error() -> None:
    with pytest.raises(UnreadableLogError, match="Leave out --format"):
        read(SAMPLES["json"], "combined")


def test_a_log_in_no_known_format_names_those_that_are() -> None:
    with pytest.raises(UnreadableLogError, match="common") as caught:
        read("hello\n" * 3)
    assert "line 1 of the log: 'hello'" in str(caught.value)
    assert "--format" in str(caught.value)


def test_the_journals_prefix_is_not_taken_for_a_client() -> None:
    line = (
        "Dec 10 06:55:46 web1 gunicorn[1]: 203.0.113.7 - - [17/May/2024:10:05:03 +0000] "
        '"GET / HTTP/1.1" 200 5 "-" "-"\n'
    )
    assert brief(read(line)[1]) == EXPECTED[:1]
    with pytest.raises(UnreadableLogError):
        read("x" + line.replace("Dec", "D e c"))


def test_lines_before_the_first_request_do_not_hide_the_format() -> None:
    log, entries = read("Booting\nListening\n" + SAMPLES["json"] * 2)
    assert (len(entries), log.malformed) == (4, 2)
