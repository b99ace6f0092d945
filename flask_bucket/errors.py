"""The errors that everything else may raise. They know neither Flask nor HTTP.

A refusal over HTTP is :class:`flask_bucket.RateLimitExceeded`, in ``answers.py``.
"""

from __future__ import annotations


class ConfigError(ValueError):
    """Something was set up wrong. The message says what was given, what was expected, and what to
    do.

    Raised as early as the mistake can be seen: where a limit is written, or at ``init_app``.
    """


class StoreUnavailable(Exception):  # noqa: N818  # the name is public
    """The store could not decide: Redis is out of reach, or in no state to answer.

    Stores raise it. Clients see it, as a 503, only if ``BUCKET_ON_ERROR`` is ``"deny"`` or the
    application called a method such as ``limiter.reset`` that needs the store.
    """

    def __init__(self, reason: str) -> None:
        Exception.__init__(self, reason)
        #: The cause, in the words of the client library: for the log, not for clients.
        self.reason = reason
        #: A key of the call that failed, where several servers answer parts of one decision.
        self.key: str | None = None

    def __str__(self) -> str:
        return self.reason


class BucketUnreadable(StoreUnavailable):
    """One key holds something that is not a bucket. The other buckets can be read."""


class Connecting(StoreUnavailable):
    """A connection is being made, and nothing has failed: this request could not wait for it.

    :param in_vain: whether it is not the first request that waited for this connection in vain.
    """

    def __init__(self, reason: str, *, in_vain: bool = False) -> None:
        super().__init__(reason)
        self.in_vain = in_vain
