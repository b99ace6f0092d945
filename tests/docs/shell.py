"""The few commands in the documentation, run on a test client and a test server."""

from __future__ import annotations

import argparse
import re
import shlex
import time
from collections.abc import Callable, Iterator

import redis
from flask import Flask

#: Finds the app that listens at a port.
Apps = Callable[[str], Flask]

LOOP = re.compile(r"for i in \$\(seq (\d+)\); do (.+); done")
WAIT = re.compile(r"sleep ([\d.]+); (.+)")
TIME_LEFT = re.compile(r'("(?:retryAfterMs|reset_after)": ?)([\d.]+)')

_CURL = argparse.ArgumentParser("curl")
_CURL.add_argument("-i", action="store_true")
_CURL.add_argument("-s", action="store_true")
_CURL.add_argument("-X", default=None)
_CURL.add_argument("-H", action="append", default=[])
_CURL.add_argument("-d", default=None)
_CURL.add_argument("url")


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the commands of a session, each with the lines that it shows."""
    shown: list[str] = []
    command = None
    for line in text.splitlines():
        if line.startswith("$ "):
            if command is not None:
                yield command, shown
            command, shown = line.removeprefix("$ "), []
        else:
            shown.append(line)
    if command is not None:
        yield command, shown


def play(command: str, apps: Apps, server: Callable[[], redis.Redis]) -> list[str] | None:
    """Return the lines that a command prints; None for a command that is not supported here."""
    if loop := LOOP.fullmatch(command):
        lines: list[str] = []
        for _ in range(int(loop[1])):
            lines += play(loop[2], apps, server) or []
        return lines
    if waiting := WAIT.fullmatch(command):
        time.sleep(float(waiting[1]))
        return play(waiting[2], apps, server)
    program, *arguments = shlex.split(command)
    if program == "curl":
        return curl(_CURL.parse_args(arguments), apps)
    if program == "redis-cli":
        return redis_cli(arguments, server())
    return None


def curl(asked: argparse.Namespace, apps: Apps) -> list[str]:
    match = re.fullmatch(r"(?:http://)?localhost:(\d+)(/.*)", asked.url)
    assert match, f"curl {asked.url}: the examples live at localhost"
    headers = dict(header.split(": ", 1) for header in asked.H)
    if asked.d is not None:
        headers.setdefault("Content-Type", "application/x-www-form-urlencoded")
    method = asked.X or ("GET" if asked.d is None else "POST")
    response = (
        apps(match[1]).test_client().open(match[2], method=method, headers=headers, data=asked.d)
    )
    body = response.get_data(as_text=True).splitlines()
    if not asked.i:
        return body
    head = [f"HTTP/1.1 {response.status}"]
    return [*head, *(f"{key}: {value}" for key, value in response.headers), "", *body]


def redis_cli(arguments: list[str], client: redis.Redis) -> list[str]:
    if arguments[0] == "--scan":
        assert arguments[1] == "--pattern"
        return sorted(key.decode() for key in client.scan_iter(match=arguments[2]))
    reply = client.execute_command(*arguments)  # type: ignore[no-untyped-call]
    if isinstance(reply, dict):
        reply = [part for pair in reply.items() for part in pair]
    if isinstance(reply, list):
        return [f'{n}) "{part.decode()}"' for n, part in enumerate(reply, 1)]
    return [f"(integer) {reply}" if isinstance(reply, int) else f'"{reply.decode()}"']


def steady(line: str) -> str:
    """Return a line with its points in time masked, because they differ each time."""
    return re.sub(r"\b1\d{9}(?:\d{6})?\b", "<time>", line.rstrip())


def shows(printed: list[str], expected: list[str]) -> bool:
    """Return whether the printed lines contain the lines of the page, in order."""
    rest = iter(printed)
    shown = [line for line in expected if line.strip() not in ("", "...")]
    return all(any(agree(line, wanted) for line in rest) for wanted in shown)


def agree(printed: str, shown: str) -> bool:
    """Return whether a line is the one that the page shows.

    The page shows the longest waits; real ones are shorter by the time that has passed.
    """
    waits = [float(number) for _, number in TIME_LEFT.findall(printed)]
    longest = [float(number) for _, number in TIME_LEFT.findall(shown)]
    alike = steady(TIME_LEFT.sub(r"\1", printed)) == steady(TIME_LEFT.sub(r"\1", shown))
    return alike and all(0 < w <= most for w, most in zip(waits, longest, strict=True))
