"""The errors that reach users of the extension, and their bodies."""

from __future__ import annotations

import json
from collections.abc import Iterable
from math import ceil
from typing import TYPE_CHECKING, Any

from flask import Flask
from werkzeug.exceptions import HTTPException, ServiceUnavailable, TooManyRequests

from .decisions import Decision
from .headers import whole_seconds
from .limits import ConfigError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

__all__ = ["BucketUnreadable", "ConfigError", "RateLimitExceeded", "StoreUnavailable"]

#: The registry of problem types of draft-ietf-httpapi-ratelimit-headers-11, section 6.
PROBLEMS = "https://iana.org/assignments/http-problem-types"


#: What a view or a hook returns: body, status and headers.
Answer = tuple[str, int, list[tuple[str, str]]]

#: Flask's own way from an exception to a response. Whoever replaces a part of it, in a class, in
#: an application, or in Flask itself, wants to see exceptions.
_FLASKS = {
    name: getattr(Flask, name)
    for name in (
        "full_dispatch_request",
        "preprocess_request",
        "dispatch_request",
        "handle_user_exception",
        "handle_http_exception",
        "make_response",
    )
}


class _Refusal(HTTPException):
    """A refusal with a body for machines, instead of Werkzeug's page for people."""

    problem_type: str
    #: Seconds until it is worth trying again; None if it never is, or that is not known.
    wait: float | None = None
    #: How the body is written: "json" or "problem" (RFC 9457).
    error_format: str = "json"

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer as a WSGI application, which is what Flask makes its response from.

        Werkzeug's way makes a response of its own in between, at a third of a refusal's time.
        """
        if self.response is not None:
            return super().__call__(environ, start_response)
        body = self.get_body().encode()
        headers = [*self.get_headers(), ("Content-Length", str(len(body)))]
        start_response(f"{self.code} {self.name.upper()}", headers)
        return [body]

    def get_headers(self, *args: Any, **kwargs: Any) -> list[tuple[str, str]]:
        kind = "problem+json" if self.error_format == "problem" else "json"
        headers = [("Content-Type", f"application/{kind}"), ("Cache-Control", "no-store")]
        if self.wait is not None:
            headers.append(("Retry-After", str(whole_seconds(self.wait))))
        return headers

    def get_body(self, *args: Any, **kwargs: Any) -> str:
        body = self._problem() if self.error_format == "problem" else self._plain()
        return json.dumps(body) + "\n"

    def _plain(self) -> dict[str, Any]:
        wait = None if self.wait is None else ceil(self.wait * 1000)
        return {"error": self.description, "retryAfterMs": wait}

    def _problem(self) -> dict[str, Any]:
        detail = "Nothing will change that."
        if self.wait is not None:
            detail = f"Try again in {whole_seconds(self.wait)} s."
        if self.description != self.name:
            detail = str(self.description)
        return {
            "type": PROBLEMS + self.problem_type,
            "title": self.name,
            "status": self.code,
            "detail": detail,
        }


class RateLimitExceeded(_Refusal, TooManyRequests):
    """A limit refused the request: a 429.

    Handle it with ``@app.errorhandler(429)`` or ``@app.errorhandler(RateLimitExceeded)`` to
    write another body; the rate headers and Retry-After are added to whatever is answered.
    """

    problem_type = "#quota-exceeded"

    def __init__(
        self, decision: Decision, message: str | None = None, error_format: str = "json"
    ) -> None:
        super().__init__(message or self.name)
        #: Whether, why and for how long the request was refused.
        self.decision = decision
        self.wait = decision.retry_after
        self.error_format = error_format

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.decision, self.description, self.error_format)

    def _problem(self) -> dict[str, Any]:
        refused = [o for o in self.decision.outcomes if not o.allowed and not o.shadow]
        return {**super()._problem(), "violated-policies": [o.limit.name for o in refused]}


class StoreUnavailable(_Refusal, ServiceUnavailable):
    """The store could not decide: Redis is out of reach, or in no state to answer. A 503.

    Stores raise it; clients see it only if ``BUCKET_ON_ERROR`` is ``"deny"``.
    """

    problem_type = "#temporary-reduced-capacity"

    def __init__(self, reason: str, wait: float | None = None, error_format: str = "json") -> None:
        super().__init__(self.name)
        #: What went wrong, in the words of the client library: for the log, not for clients.
        self.reason = reason
        self.wait = wait
        self.error_format = error_format

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.wait, self.error_format)

    def __str__(self) -> str:
        return self.reason


class BucketUnreadable(StoreUnavailable):
    """One key holds something that is not a bucket; the other buckets are well."""


def returned(app: Flask, refusal: HTTPException) -> Answer:
    """Return what to answer a refusal with; or raise it, where the application could see that.

    To raise it and have Flask make a response of it takes two fifths of what a request without
    limits takes, and where nobody looks the same comes out in the end.
    """
    codes = (None, refusal.code)
    if (
        not isinstance(refusal, _Refusal)
        or refusal.response is not None
        # A copy, since Flask adds to it while other threads handle errors.
        or any(by_code.get(c) for by_code in tuple(app.error_handler_spec.values()) for c in codes)
        or any(name in app.__dict__ for name in _FLASKS)
        or any(getattr(type(app), name) is not method for name, method in _FLASKS.items())
        or app.trap_http_exception(refusal)
    ):
        raise refusal
    return refusal.get_body(), refusal.code or 500, refusal.get_headers()
