"""Bodies: telling when a streamed body is over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Any

from flask import Response

#: The statuses, beside 1xx, of responses without a body.
_WITHOUT_BODY = (204, 304)


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


def is_streamed(response: Response) -> bool:
    """Return whether a body is not all there. The files of some servers know their length."""
    return not response.is_sequence


def is_sent_later(response: Response, method: str) -> bool:
    """Return whether a body is still to be streamed once the response is made."""
    status = response.status_code
    if method == "HEAD" or status < 200 or status in _WITHOUT_BODY:
        return False
    if status >= 300 and response.content_length is not None:
        return False  # Flask makes an iterator of the page of an exception, which is all there
    return is_streamed(response)


def with_closing(
    response: Response, environ: Mapping[str, Any], over: Callable[[], None]
) -> Response:
    """Return a streamed response after whose body a function is called.

    A copy, since the application may answer other requests with the very same object. Werkzeug
    calls nothing when a body that is passed through is closed, so the body itself has to say it.
    """
    body = response.response
    # A server recognises what its own wrapper made, and sends the file faster. Nothing may stand in
    # the place of that. So its close, which servers always call, is replaced on the object itself,
    # which serves this request alone.
    if response.direct_passthrough and environ.get("wsgi.file_wrapper") is not None:
        with suppress(AttributeError):  # a generator, or an object written in C
            body.close = partial(_closed, getattr(body, "close", None), over)  # type: ignore[union-attr]  # or that
            return response
    answer = copy(response)
    answer.response = Body(body, over)
    return answer


def _closed(close: Callable[[], None] | None, over: Callable[[], None]) -> None:
    try:
        if close is not None:
            close()
    finally:
        over()
