"""Traffic: the times of each client's requests, from access logs."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from ..clients import normal_address
from .formats import Entry

By = Literal["address", "user"]

#: The user column of a request without a user.
NOBODY = (b"", b"-", b'""')

#: Clients whose spelling is remembered, so that not every line repeats the work.
_KNOWN = 100_000


@dataclass(slots=True)
class Traffic:
    """The times of each client's requests: eight bytes for each, plus the names of the clients.

    :param by: the key of a client: its address, or the user in the log.
    :param ipv6_prefix: leading bits of an IPv6 address that make a client.
    """

    by: By = "address"
    ipv6_prefix: int = 64
    #: Microseconds since 1970 of each client's requests. Sorted after :meth:`sort`.
    times: dict[str, array[int]] = field(default_factory=dict)
    #: Requests left out for lack of a user.
    nameless: int = 0

    @property
    def requests(self) -> int:
        return sum(map(len, self.times.values()))

    def sort(self) -> None:
        """Put each client's requests in order: logs are written when requests end."""
        for client, times in self.times.items():
            self.times[client] = array("q", sorted(times))

    def add(self, entries: Iterable[Entry]) -> None:
        """Add the requests of a log."""
        by_user = self.by == "user"
        known: dict[bytes, array[int]] = {}
        for entry in entries:
            raw = entry.user if by_user else entry.address
            times = known.get(raw)
            if times is None:
                if by_user and raw in NOBODY:
                    self.nameless += 1
                    continue
                if len(known) > _KNOWN:
                    known.clear()
                times = known[raw] = self._times_of(raw)
            assert entry.at is not None
            times.append(entry.at)

    def _times_of(self, raw: bytes) -> array[int]:
        client = raw.decode(errors="backslashreplace")
        if self.by == "address":
            client = normal_address(client, self.ipv6_prefix) or client
        return self.times.setdefault(client, array("q"))
