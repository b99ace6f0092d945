"""Requests in access logs, routed as the application would route them."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from flask import Flask
from werkzeug.exceptions import HTTPException
from werkzeug.routing import RoutingException

from .formats import Entry
from .traffic import NOBODY

_REQUEST_LINE = re.compile(rb"([A-Z]+) (\S+)")

#: Different request lines whose routes are remembered.
_REMEMBERED = 100_000


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request went."""

    #: None for a URL that no route matches.
    endpoint: str | None
    method: str
    #: Whether it reached the view, unlike the OPTIONS that Flask answers.
    reached_view: bool = True


@dataclass(frozen=True, slots=True)
class Routed:
    """One request."""

    at: int
    address: str
    #: Empty if the log names none.
    user: str
    target: Target
    #: 0 if the log names none.
    status: int


class Router:
    """Finds where requests go, by an application's URL map.

    Logs do not name the host, so an application with host matching has no routes here.
    """

    def __init__(self, app: Flask) -> None:
        self._root = app.config["APPLICATION_ROOT"].rstrip("/")
        self._map = app.url_map.bind(app.config["SERVER_NAME"] or "localhost")

    def target(self, line: bytes) -> Target | None:
        """Return where a request went; None if the line is not a request's."""
        match = _REQUEST_LINE.search(line)  # Werkzeug's log may have colours before the method
        if match is None:
            return None
        method, url = match[1].decode(), match[2].decode(errors="replace")
        if not url.startswith("/"):
            url = urlsplit(url).path or "/"  # as a proxy is asked, and as load balancers write it
        path = unquote(url.partition("?")[0])
        if self._root and path.startswith(self._root + "/"):
            path = path.removeprefix(self._root)
        try:
            rule, _ = self._map.match(path, method, return_rule=True)
        except (HTTPException, RoutingException):
            return Target(None, method)
        automatic = method == "OPTIONS" and getattr(rule, "provide_automatic_options", False)
        return Target(rule.endpoint, method, reached_view=not automatic)


class RoutedTraffic:
    """The requests of access logs, in the order in which they came."""

    def __init__(self, app: Flask) -> None:
        self._router = Router(app)
        self._remembered: dict[bytes, int | None] = {}
        # Values that come again and again are kept once, each with its number.
        self._addresses: dict[bytes, int] = {}
        self._users: dict[bytes, int] = {}
        self._targets: dict[Target, int] = {}
        self._times = array("q")
        #: Numbers of the address, the user and the target, and the status, of each request.
        self._facts = tuple(array("I") for _ in range(4))
        #: Lines of the log without a request, such as those of TLS sent to a plain port.
        self.without_request = 0

    def __len__(self) -> int:
        return len(self._times)

    def add(self, entries: Iterable[Entry]) -> None:
        """Add the requests of a log."""
        addresses, users, targets, statuses = self._facts
        for entry in entries:
            target = self._target(entry.request)
            if target is None:
                self.without_request += 1
                continue
            assert entry.at is not None
            self._times.append(entry.at)
            addresses.append(self._addresses.setdefault(entry.address, len(self._addresses)))
            users.append(self._users.setdefault(entry.user, len(self._users)))
            targets.append(target)
            statuses.append(int(entry.status) if entry.status.isdigit() else 0)

    def _target(self, line: bytes) -> int | None:
        if line not in self._remembered:
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            target = self._router.target(line)
            number = None
            if target is not None:
                number = self._targets.setdefault(target, len(self._targets))
            self._remembered[line] = number
        return self._remembered[line]

    def __iter__(self) -> Iterator[Routed]:
        addresses = [raw.decode(errors="backslashreplace") for raw in self._addresses]
        users = [
            "" if raw in NOBODY else raw.decode(errors="backslashreplace") for raw in self._users
        ]
        targets = list(self._targets)
        of_address, of_user, of_target, statuses = self._facts
        for n in sorted(range(len(self._times)), key=self._times.__getitem__):
            yield Routed(
                self._times[n],
                addresses[of_address[n]],
                users[of_user[n]],
                targets[of_target[n]],
                statuses[n],
            )
