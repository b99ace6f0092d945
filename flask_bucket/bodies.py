"""Bodies: telling when the answer to a request has been sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from flask import Response
from werkzeug.wsgi import ClosingIterator

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

#: Ends a request for one Limiter, and returns whether it is over. Called when the application has
#: returned, and again with True once the body has been sent or never will be.
End = Callable[[bool], bool]

#: The key of an environ that holds the ends of its request.
_ENDS = "flask_bucket.ends"

#: The statuses of responses without a body, in addition to 1xx.
_WITHOUT_BODY = (204, 304)


class Watched:
    """A WSGI application that tells the end of each request.

    Flask's hooks cannot tell it. A teardown function that fails keeps the later ones from being
    called, copies of a context are torn down too, and a later hook may replace the body that our
    hook saw.
    """

    def __init__(self, wsgi_app: WSGIApplication) -> None:
        self.wsgi_app = wsgi_app

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        outer = environ.get(_ENDS)  # of a request that hands its environ on
        ends: dict[int, End] = {}
        environ[_ENDS] = ends
        try:
            body = self.wsgi_app(environ, start_response)
        except BaseException:
            for end in ends.values():
                end(True)
            raise
        finally:
            environ[_ENDS] = outer
        waiting = [end for end in ends.values() if not end(False)] if ends else ()
        return _told(body, environ, waiting) if waiting else body


def ends_of(environ: WSGIEnvironment) -> dict[int, End] | None:
    """Return the list of ends of a request, for adding one; None if nobody tells its end.

    Nobody does for a context that is made by hand, or that is used again later.
    """
    ends: dict[int, End] | None = environ.get(_ENDS)
    return ends


class Body:
    """A body that is streamed, and a function that is called once when it is over.

    It is over when it is exhausted, when it fails, or when it is closed: servers close bodies, and
    Flask's test client only reads them.
    """

    def __init__(self, body: Iterable[Any], over: Callable[[], None]) -> None:
        self._parts = iter(body)
        self._close = getattr(body, "close", None)
        self._over: Callable[[], None] | None = over

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return next(self._parts)
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        """Close the body itself, and say that it is over."""
        try:
            if self._close is not None:
                self._close()
        finally:
            self._end()

    def _end(self) -> None:
        over, self._over = self._over, None
        if over is not None:
            over()


def is_sent_later(response: Response, environ: WSGIEnvironment) -> bool:
    """Return whether a body is streamed after the response is made, and its end can be told."""
    if response.is_sequence or ends_of(environ) is None:
        return False
    status = response.status_code
    if environ["REQUEST_METHOD"] == "HEAD" or status < 200 or status in _WITHOUT_BODY:
        return False
    # The page of an exception is all there. Flask runs exceptions as WSGI applications, and these
    # are the iterators that Werkzeug makes of what they return.
    is_page = isinstance(response.response, (chain, ClosingIterator))
    return not (is_page and status >= 300 and response.content_length is not None)


def _told(body: Any, environ: WSGIEnvironment, ends: Iterable[End]) -> Iterable[bytes]:
    """Return a body whose end is told."""

    def over() -> None:
        for end in ends:
            end(True)

    # A server recognises the object that its own wrapper made, and sends the file faster. So that
    # object must stay. Its close, which servers always call, is replaced on the object itself,
    # which serves this request alone. If Werkzeug does not pass a body through, it is a
    # ClosingIterator.
    if environ.get("wsgi.file_wrapper") is not None and not isinstance(body, ClosingIterator):
        with suppress(AttributeError):  # a generator, or an object written in C
            body.close = partial(_closed, getattr(body, "close", None), over)
            return body  # type: ignore[no-any-return]  # what a WSGI application returned
    return Body(body, over)


def _closed(close: Callable[[], None] | None, over: Callable[[], None]) -> None:
    try:
        if close is not None:
            close()
    finally:
        over()
