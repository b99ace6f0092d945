"""Endings: when a request is over, for one Limiter in one application."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any

from flask import Flask
from flask import globals as flask_globals
from flask.signals import request_tearing_down

from . import forks
from .bodies import Watched, ends_of
from .current import current_request
from .exchange import Exchange, exchanges_of
from .holdings import Holdings

#: The context of one request. From Flask 3.2 on, it is the application's context too.
_CONTEXT = vars(flask_globals).get("request_ctx", flask_globals.app_ctx)


class Endings:
    """Settles requests when they are over.

    :param name: the Limiter's.
    :param settle: settles what is known of a request, and gives back its slots.
    """

    def __init__(self, app: Flask, name: str, settle: Callable[[Exchange], None]) -> None:
        self._app = app
        self._name = name
        self._settle = settle
        #: Whether contexts are watched, because some that were made by hand hold slots.
        self._watches_contexts = False
        self.after_fork()
        forks.watch(self)
        if not isinstance(app.wsgi_app, Watched):  # which another Limiter has put there
            app.wsgi_app = Watched(app.wsgi_app)  # type: ignore[method-assign]  # as Flask documents it

    def after_fork(self) -> None:
        """Make a new lock in a forked child."""
        self._lock = Lock()

    def holdings(self, exchange: Exchange) -> Holdings:
        """Return the slots of a request, all of which are given back at its end."""
        with self._lock:  # threads that work for one request share them
            if exchange.holdings is None:
                exchange.holdings = Holdings()
        self.watch(exchange)
        return exchange.holdings

    def watch(self, exchange: Exchange) -> None:
        """Have a request settled at its end, also without an answer, and after a streamed body."""
        ends = ends_of(current_request().environ)
        if ends is not None:
            ends[id(exchange)] = partial(self._end, exchange)
        elif exchange.holdings is not None:
            exchange.holdings.context = _current_context()
            if not self._watches_contexts:  # only now: other applications do not pay for it
                self._watches_contexts = True
                request_tearing_down.connect(self._at_teardown, self._app)

    def _end(self, exchange: Exchange, sent: bool) -> bool:
        """End a request that was answered, and whose body was sent. Return whether it is over."""
        exchange.streams = exchange.streams and not sent
        if not exchange.streams:
            self._settle(exchange)
        return not exchange.streams

    def _at_teardown(self, app: Flask, **_: Any) -> None:
        """End a request whose context was made by hand."""
        exchange = exchanges_of(current_request()).by_limiter.get(self._name)
        if exchange is None or exchange.holdings is None or exchange.streams:
            return
        if exchange.holdings.context == _current_context():
            self._settle(exchange)


def _current_context() -> int:
    """Return an object that tells the context of a request from its copies.

    ``copy_current_request_context`` gives a thread the same request in another context. When the
    thread is done, that copy is torn down, and the request goes on.
    """
    return id(_CONTEXT._get_current_object())
