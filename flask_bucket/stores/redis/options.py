"""Options that would undo the timeouts, or send a charge twice, and what to use instead.

Used for URLs and options, for clients that are handed in, and by ``flask bucket doctor``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...config import OWN_OPTIONS
from . import library

_TWICE = "a charge must not be sent twice, so nothing is retried"

#: Options that a URL and BUCKET_REDIS_OPTIONS must not hold, and why.
REFUSED = {
    **{name: f"set {key}" for name, key in OWN_OPTIONS.items()},
    "socket_timeout": "set BUCKET_TIMEOUT: it counts for a whole call",
    "socket_connect_timeout": "set BUCKET_CONNECT_TIMEOUT: it counts for all steps together",
    "retry": _TWICE,
    "retry_on_timeout": _TWICE,
    "retry_on_error": _TWICE,
    "redis_connect_func": "hand in a client of your own that has it",
}

#: How to make a client that sends nothing twice, a RedisCluster too: there, ``retry=None`` would
#: choose redis-py's own retries.
NO_RETRIES = (
    "retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0) (a RedisCluster before redis-py 6 needs "
    "cluster_error_retry_attempts=0 as well)"
)


@dataclass(frozen=True, slots=True)
class Waits:
    """How long a client waits, and how often it tries."""

    #: Seconds to connect, and to wait for each part of a reply; None is for ever.
    connect_timeout: float | None
    reply_timeout: float | None
    #: How often a command that failed is sent again; negative is without end.
    retries: int

    @classmethod
    def of(cls, client: Any) -> Waits:
        """Return the waits of a redis-py client."""
        options = library.options_of(client)
        return cls(
            options.socket_connect_timeout, options.socket_timeout, library.retries_of(client)
        )

    @property
    def missing(self) -> str:
        """The timeouts that it lacks, in words; empty if it has both."""
        lacking = {
            "socket_connect_timeout": self.connect_timeout,
            "socket_timeout": self.reply_timeout,
        }
        return " and no ".join(name for name, seconds in lacking.items() if seconds is None)

    @property
    def repeats(self) -> str:
        """How often it sends a command again, in words; empty if never."""
        if self.retries < 0:
            return "again and again"
        return f"up to {self.retries} more times" if self.retries else ""


def check(options: Iterable[str], where: str) -> None:
    """Refuse options that would undo the timeouts, or send a charge twice.

    :raises ValueError: for the first one.
    """
    for name in options:
        if name in REFUSED:
            raise ValueError(f"{name} is not an option {where}; {REFUSED[name]}")
