"""Reading access logs: whole lines, the times in them, and one spelling for each client."""

from __future__ import annotations

import gzip
import importlib
import io
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from flask_bucket.cli import stamps
from flask_bucket.cli.logs import Log, UnreadableLogError, blocks
from flask_bucket.cli.traffic import Traffic
from flask_bucket.clients import normal_address
from flask_bucket.limits import SECOND
from tests.cli.conftest import line
from tests.servers import missing


def read(text: str | bytes, traffic: Traffic | None = None) -> Traffic:
    return read_log(text, traffic)[0]


def read_log(text: str | bytes, traffic: Traffic | None = None) -> tuple[Traffic, Log]:
    traffic = traffic or Traffic()
    data = text.encode() if isinstance(text, str) else text
    log = Log("the log")
    traffic.add(log.entries(blocks("the log", io.BytesIO(data), lambda size: None)))
    traffic.sort()
    return traffic, log


def test_every_line_is_read_as_apachelogs_reads_it(each_log: Path) -> None:
    try:
        apachelogs = importlib.import_module("apachelogs")
    except ImportError:
        missing("apachelogs")
    parser = apachelogs.LogParser(apachelogs.COMBINED)
    expected: Counter[tuple[str, int]] = Counter()
    for text in each_log.read_text().splitlines():
        entry = parser.parse(text)
        client = normal_address(entry.remote_host) or ""
        expected[client, int(entry.request_time.timestamp()) * SECOND] += 1
    traffic, log = read_log(each_log.read_bytes())
    assert log.malformed == 0
    assert expected == Counter(
        (client, at) for client, times in traffic.times.items() for at in times
    )


@pytest.mark.parametrize(
    "rest",
    [
        '"GET / HTTP/1.1" 200 5',
        '"GET / HTTP/1.1" 304 -',
        '"-" 408 -',
        '"" 400 0',
        r'"GET /\"quoted\" HTTP/1.1" 404 9',
        r'"\x16\x03\x01" 400 150 "-" "-"',
        '"GET / HTTP/1.1" 200 5 "http://example.org/" "Agent (X11; \\"y\\")"',
        '"GET / HTTP/1.1" 200 5 "-" "-" 0.003 "more"',
        '"GET / HTTP/1.1" 200 5\r',
    ],
)
def test_requests_of_every_look_are_read(rest: str) -> None:
    traffic, log = read_log(line(rest=rest) + "\n")
    assert (traffic.requests, log.malformed) == (1, 0)


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        line(rest='"GET / HTT'),
        line(rest=""),
        line(time="17/May/2015:10:05:03"),
        line(time="31/Feb/2015:10:05:03 +0000"),
        line(time="17/Mai/2015:10:05:03 +0000"),
        line(time="17/May/2015:25:05:03 +0000"),
        line(time="17/May/0000:10:05:03 +0000"),
        line(time="17/May/9999:10:05:03 +0000"),
        line(rest='"GET / HTTP/1.1" two 5'),
        "example.org:80 " + line(),
        "\0\0\0" + line(),
    ],
)
def test_other_lines_are_counted_and_left_out(text: str) -> None:
    traffic, log = read_log("\n".join([*[line()] * 400, text, line(), ""]))
    assert (traffic.requests, log.malformed) == (401, 1)


def test_blank_lines_are_no_lines_of_a_log() -> None:
    traffic, log = read_log("\n\r\n" + line() + "\n\n" + line() + "\n \n")
    assert (traffic.requests, log.malformed) == (2, 0)


def test_a_log_of_blank_lines_has_no_requests() -> None:
    with pytest.raises(UnreadableLogError, match="its lines are blank"):
        read(b"\n \r\n\n")


def test_a_last_line_without_an_end_counts() -> None:
    assert read(line() + "\n" + line()).requests == 2


@pytest.mark.parametrize("zone", ["+0000", "-0700", "+0530", "+1400"])
def test_times_are_read_in_their_zone(zone: str) -> None:
    text = f"29/Feb/2016:23:59:59 {zone}"
    expected = datetime.strptime(text, "%d/%b/%Y:%H:%M:%S %z")
    assert stamps.clf(text.encode()) == expected.timestamp() * SECOND


def test_a_leap_second_is_a_time() -> None:
    expected = datetime(2017, 1, 1, tzinfo=UTC).timestamp()
    assert stamps.clf(b"31/Dec/2016:23:59:60 +0000") == expected * SECOND


def test_addresses_of_one_client_are_one() -> None:
    log = [line("2001:db8::1"), line("2001:db8::2"), line("::ffff:192.0.2.1"), line("192.0.2.1")]
    traffic = read("\n".join(log))
    assert {client: len(times) for client, times in traffic.times.items()} == {
        "2001:db8::/64": 2,
        "192.0.2.1": 2,
    }


def test_the_length_of_the_network_is_the_users() -> None:
    traffic = read("\n".join([line("2001:db8::1"), line("2001:db8::2")]), Traffic(ipv6_prefix=128))
    assert set(traffic.times) == {"2001:db8::1", "2001:db8::2"}


def test_by_user_requests_without_one_are_left_out() -> None:
    log = [line(user="alice"), line(user="-"), line(user='""'), line(user="bob the builder")]
    traffic = read("\n".join(log), Traffic(by="user"))
    assert set(traffic.times) == {"alice", "bob the builder"}
    assert traffic.nameless == 2


def test_each_client_comes_in_order_whatever_the_logs_order() -> None:
    log = [line(time=f"17/May/2015:10:05:{s:02} +0000") for s in (9, 3, 7)]
    (times,) = read("\n".join(log)).times.values()
    assert list(times) == sorted(times)


def test_gzip_is_known_by_its_first_bytes() -> None:
    packed = gzip.compress((line() + "\n").encode())
    assert read(packed + packed).requests == 2  # as logs are joined


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (gzip.compress(line().encode() * 99)[:-9], "damaged gzip"),
        (b"\x1f\x8bnothing", "damaged gzip"),
        (b"\x7fELF\x02\x01\x01\0\0\0", "binary"),
    ],
)
def test_what_is_no_log_is_refused_with_a_reason(data: bytes, why: str) -> None:
    with pytest.raises(UnreadableLogError, match=why):
        read(data)


def test_a_line_without_end_takes_no_memory() -> None:
    traffic, log = read_log(line() + "\n" + "x" * 5_000_000)
    assert (traffic.requests, log.malformed) == (1, 1)


def test_lines_across_blocks_are_whole() -> None:
    count = 40_000  # several blocks
    traffic, log = read_log("".join(line(f"192.0.2.{n % 250}") + "\n" for n in range(count)))
    assert (traffic.requests, log.malformed, len(traffic.times)) == (count, 0, 250)
