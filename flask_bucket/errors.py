"""The errors that reach users of the extension."""

from __future__ import annotations

from werkzeug.exceptions import ServiceUnavailable, TooManyRequests

from .decisions import Decision
from .limits import ConfigError as ConfigError


class RateLimitExceeded(TooManyRequests):
    """A limit refused the request: a 429.

    Handle it with ``@app.errorhandler(429)`` or ``@app.errorhandler(RateLimitExceeded)`` to
    write another body. The rate headers and Retry-After are added to whatever is answered.
    """

    #: Whether, why and for how long the request was refused.
    decision: Decision

    def __init__(self, decision: Decision, message: str | None = None) -> None:
        super().__init__(message or "Too Many Requests")
        self.decision = decision


class StoreUnavailable(ServiceUnavailable):
    """The store could not decide: Redis is out of reach, or in no state to answer. A 503.

    Stores raise it; the extension answers with it only if ``BUCKET_ON_ERROR`` is ``"deny"``.
    """

    #: What went wrong, in the words of the client library.
    reason: str

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__("Service Unavailable")
        self.reason = reason
        #: Seconds until the store is tried again, if that is known.
        self.wait = retry_after

    def __str__(self) -> str:
        return self.reason


class BucketUnreadable(StoreUnavailable):
    """One key holds something that is not a bucket; the other buckets are well."""
