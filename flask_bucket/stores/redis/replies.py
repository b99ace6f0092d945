"""Failures of the client library and the server, as the package's own errors."""

from __future__ import annotations

import re

from redis.exceptions import RedisClusterException, RedisError, TryAgainError

from ...errors import BucketUnreadable, StoreUnavailable

#: Everything that the client library raises when a call fails, whatever the reason.
FAILURES = (RedisError, RedisClusterException, OSError)

#: How the server words that a key holds no bucket: another type, or other fields.
_NOT_A_BUCKET = re.compile("WRONGTYPE|attempt to (compare|perform arithmetic|call|index)")


class Scattered(StoreUnavailable):
    """The keys of one call are on several nodes, because their slot is being moved."""


def translated(error: Exception) -> StoreUnavailable:
    """Return the package's own error for one of `FAILURES`."""
    reason = f"{type(error).__name__}: {error}"
    if isinstance(error, TryAgainError):
        return Scattered(reason)
    if _NOT_A_BUCKET.search(str(error)):
        return BucketUnreadable(reason)
    return StoreUnavailable(reason)


def scan_literal(text: str) -> str:
    """Escape the characters that a pattern of SCAN would read as wildcards."""
    return re.sub(r"([*?\[\]\\^-])", r"\\\1", text)
