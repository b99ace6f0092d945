"""Refusals over HTTP: the exceptions that Flask turns into responses, and their bodies."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from math import ceil
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from flask import Flask, Response
from werkzeug.datastructures import Headers
from werkzeug.exceptions import HTTPException, ServiceUnavailable, TooManyRequests
from werkzeug.routing.exceptions import RoutingException

from .decisions import Decision
from .errors import StoreUnavailable
from .headers import whole_seconds
from .limits import Limit

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

#: The registry of problem types of draft-ietf-httpapi-ratelimit-headers-11, section 6.
PROBLEMS = "https://iana.org/assignments/http-problem-types"


class MachineReadable(HTTPException):
    """An HTTP error with a JSON body for programs, instead of Werkzeug's page for people.

    :param message: the text of the body; by default the name of the status.
    :param wait: seconds until it is worth trying again; None if it never is, or is unknown.
    :param error_format: how the body is written: "json" or "problem" (RFC 9457).
    """

    problem_type: str
    #: The name of the status. Werkzeug's property looks it up, and imports the table each time.
    name: str

    def __init__(
        self, message: str | None = None, wait: float | None = None, error_format: str = "json"
    ) -> None:
        super().__init__(message or self.name)
        self.wait = wait
        self.error_format = error_format
        #: Whole seconds, under the name that Werkzeug's own exceptions have for it.
        self.retry_after: datetime | int | None = None if wait is None else whole_seconds(wait)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer as a WSGI application. Flask makes its response from this.

        Werkzeug would make a response of its own in between, at a third of a refusal's time.
        """
        _drop_traceback(self)
        body = self.get_body().encode()
        headers = [*self.get_headers(), ("Content-Length", str(len(body)))]
        start_response(f"{self.code} {self.name.upper()}", headers)
        return [body]

    def get_headers(self, *args: Any, **kwargs: Any) -> list[tuple[str, str]]:
        kind = "problem+json" if self.error_format == "problem" else "json"
        headers = [("Content-Type", f"application/{kind}"), ("Cache-Control", "no-store")]
        if self.retry_after is not None:
            headers.append(("Retry-After", str(self.retry_after)))
        return headers

    def get_body(self, *args: Any, **kwargs: Any) -> str:
        if self.error_format == "problem":
            return json.dumps(self._problem()) + "\n"
        # Written out, since json.dumps takes four times as long for a dictionary as for a text.
        wait = "null" if self.wait is None else ceil(self.wait * 1000)
        return f'{{"error": {json.dumps(self.description)}, "retryAfterMs": {wait}}}\n'

    def _problem(self) -> dict[str, Any]:
        detail = "Nothing will change that."
        if self.retry_after is not None:
            detail = f"Try again in {self.retry_after} s."
        if self.description != self.name:
            detail = str(self.description)
        return {
            "type": PROBLEMS + self.problem_type,
            "title": self.name,
            "status": self.code,
            "detail": detail,
        }


class RateLimitExceeded(MachineReadable, TooManyRequests):
    """A limit refused the request: a 429.

    Handle it with ``@app.errorhandler(429)`` or ``@app.errorhandler(RateLimitExceeded)`` to write
    another body. The rate headers and Retry-After are added to every answer.
    """

    problem_type = "#quota-exceeded"
    name = "Too Many Requests"

    def __init__(
        self,
        decision: Decision,
        message: str | None = None,
        error_format: str = "json",
        policies: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(message, decision.retry_after, error_format)
        if message is not None:
            #: flask-smorest and Flask-RESTX take the message for their documents from here.
            self.data = {"message": message}
        #: Whether, why and for how long the request was refused.
        self.decision = decision
        #: The names of the policies that the request was charged, by their buckets' keys.
        self._policies = policies

    @property
    def limit(self) -> Limit | None:
        """The limit that the client has to wait for: that of the decision's binding outcome."""
        return self.decision.limit

    def __reduce__(self) -> tuple[Any, ...]:
        given = (self.decision, self.description, self.error_format, dict(self._policies))
        return type(self), given

    def _problem(self) -> dict[str, Any]:
        violated = [
            self._policies.get(outcome.key, outcome.limit.name)
            for outcome in self.decision.outcomes
            if not outcome.allowed and not outcome.shadow and outcome.kind != "ban"
        ]
        document = super()._problem()
        document["violated-policies"] = list(dict.fromkeys(violated))
        binding = self.decision.binding
        if binding is not None and binding.kind == "ban":
            document["type"] = PROBLEMS + "#abnormal-usage-detected"
        return document


class LimiterUnavailable(StoreUnavailable, MachineReadable, ServiceUnavailable):
    """The store could not decide: a 503 over HTTP.

    It is a :class:`~flask_bucket.StoreUnavailable` too, so that
    ``@app.errorhandler(StoreUnavailable)`` can handle it.
    """

    problem_type = "#temporary-reduced-capacity"
    name = "Service Unavailable"

    def __init__(self, reason: str, wait: float | None = None, error_format: str = "json") -> None:
        MachineReadable.__init__(self, None, wait, error_format)
        StoreUnavailable.__init__(self, reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.wait, self.error_format)


def with_headers(response: Response, written: Sequence[tuple[str, str]]) -> Response:
    """Return a response with some headers set.

    A shallow copy, since the application may answer other requests with the very same object.
    """
    answer = object.__new__(type(response))
    vars(answer).update(vars(response))  # as copy.copy does, but that takes four times as long
    answer.headers = headers = Headers()
    names = {name.lower() for name, _ in written}
    for name, value in response.headers:
        if name.lower() not in names:
            headers.add(name, value)
    for name, value in written:
        headers.add(name, value)
    return answer


def in_place_of(response: Response, answer: Response) -> Response:
    """Return the answer of ``on_breach`` in place of the response that a framework made.

    Some frameworks make their own document of every exception. Headers that hooks added to it are
    kept.
    """
    names = {name.lower() for name, _ in answer.headers}
    added = [
        (name, value)
        for name, value in response.headers
        if name.lower() not in names and not name.lower().startswith("content-")
    ]
    return with_headers(answer, added)


@contextmanager
def unavailable_over_http() -> Iterator[None]:
    """Raise StoreUnavailable as an exception that is a 503 if nobody catches it."""
    try:
        yield
    except StoreUnavailable as error:
        raise LimiterUnavailable(error.reason) from error


class BreachAnswered(RoutingException, HTTPException):
    """A refusal for which ``on_breach`` has written the response.

    The code is the response's, for frameworks that read it. Flask hands an exception with a code
    to error handlers, unless it is a RoutingException; but this one is answered already.
    """

    def __init__(self, answer: Response) -> None:
        super().__init__(response=answer)
        self.answer = answer
        self.code = answer.status_code

    @classmethod
    def by(cls, app: Flask, answer: Any) -> BreachAnswered:
        """Make a response of what ``on_breach`` returned."""
        response = app.make_response(answer)
        if isinstance(answer, (str, bytes, dict, list)):
            response.status_code = 429  # a body alone says nothing about the status
        return cls(response)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        _drop_traceback(self)
        return super().__call__(environ, start_response)


def _drop_traceback(answered: Exception) -> None:
    """Drop the traceback of an exception that is answered.

    One of its frames, in Flask, refers to the exception. This circle would keep the whole request
    until the garbage collector runs.
    """
    answered.__traceback__ = None
