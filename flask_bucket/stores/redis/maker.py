"""Maker: makes connections in a thread of its own. Requests wait for it only for a moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from copy import copy
from typing import Generic, TypeVar

from redis import exceptions

from ...errors import Connecting

Made = TypeVar("Made")
Found = TypeVar("Found")

#: So many requests may wait for one attempt in vain. Later ones do not wait.
PATIENT = 2


class Maker(Generic[Made]):
    """Makes one thing at a time, for one process: a connection, or the map of a cluster.

    A thread begins when a request needs something that is not there, and ends when nothing more is
    needed. If an attempt takes too long, requests are told at once that it failed. The attempt
    itself goes on, since a resolver cannot be interrupted, and its late result is kept.

    :param make: makes one, by a deadline on the monotonic clock, or raises a RedisError.
    :param keep: stores one where requests find it.
    :param is_wanted: says whether to make one more. Like `keep`, called with the lock held.
    :param seconds: that an attempt may take.
    """

    def __init__(
        self,
        make: Callable[[float], Made],
        keep: Callable[[Made], None],
        is_wanted: Callable[[], bool],
        seconds: float,
    ) -> None:
        self._make, self._keep, self._is_wanted = make, keep, is_wanted
        self._seconds = seconds
        #: Must be held to change anything here. Notified of each change.
        self.changed = threading.Condition()
        #: How many requests wait.
        self.waiting = 0
        #: When the attempt under way began, on the monotonic clock; None if there is none.
        self._began: float | None = None
        #: How many requests waited for it in vain.
        self._vain = 0
        self._failures = 0
        self._failure = exceptions.RedisError()
        #: If nobody was waiting at the last failure, the next request before this time is told.
        self._news_until = 0.0

    @property
    def is_making(self) -> bool:
        return self._began is not None

    def wait(self, find: Callable[[], Found | None], ends: float, alone: bool = True) -> Found:
        """Return the result of `find`, as soon as it is not None.

        :param find: looks for what is needed, with the lock held.
        :param ends: until when to wait, on the monotonic clock.
        :param alone: whether only the maker can bring it.
        :raises Connecting: if it is still being made by then, and nothing has failed.
        :raises redis.RedisError: if making it failed, or takes too long.
        """
        with self.changed:
            failures = self._failures - (time.monotonic() < self._news_until)
            self.waiting += 1
            try:
                while (found := find()) is None:
                    if failures != self._failures:
                        self._news_until = 0.0
                        raise copy(self._failure)
                    if self._began is None and self._is_wanted():
                        self._begin()
                    self._wait_a_little(ends, alone)
                return found
            finally:
                self.waiting -= 1

    def failed(self, error: exceptions.RedisError) -> None:
        """Tell the requests that wait to give up. Called with the lock held."""
        self._failures += 1
        self._failure = error
        self.changed.notify_all()

    def _wait_a_little(self, ends: float, alone: bool) -> None:
        """Wait until something changes, or raise if there is no more time."""
        now, began = time.monotonic(), self._began
        if began is None:
            if now >= ends:
                raise exceptions.ConnectionError(
                    "all connections are in use (BUCKET_MAX_CONNECTIONS)"
                )
        elif alone and now >= began + self._seconds:
            raise exceptions.TimeoutError(
                f"connecting takes longer than {self._seconds:g} s (BUCKET_CONNECT_TIMEOUT)"
            )
        elif now >= ends or (alone and self._vain >= PATIENT):
            self._vain += 1
            raise Connecting(
                f"a connection has been in the making for {now - began:.2f} s",
                in_vain=self._vain >= PATIENT,
            )
        else:
            ends = min(ends, began + self._seconds)
        self.changed.wait(ends - now)

    def _begin(self) -> None:
        try:
            self._began, self._vain = time.monotonic(), 0
            threading.Thread(target=self._run, name="flask-bucket-maker", daemon=True).start()
        except BaseException as error:
            # If a signal's handler raised, the thread may run all the same. Then there are two
            # attempts, which is better than none.
            self._began = None
            if isinstance(error, RuntimeError):  # no more threads, or the interpreter shuts down
                raise exceptions.ConnectionError(f"nothing connects: {error}") from error
            raise

    def _run(self) -> None:
        while self._made_one():
            pass

    def _made_one(self) -> bool:
        """Make one; return whether to make another one."""
        failure: exceptions.RedisError | None = None
        began = time.monotonic()
        try:
            made = self._make(began + self._seconds)
        except exceptions.RedisError as error:
            failure = error
        except BaseException as error:
            failure = exceptions.ConnectionError(f"{type(error).__name__}: {error}")
        with self.changed:
            self._began, self._vain = None, 0
            if failure is not None:
                if not self.waiting and time.monotonic() < began + self._seconds:
                    self._news_until = time.monotonic() + self._seconds
                self.failed(failure)
                return False
            self._keep(made)
            self.changed.notify_all()
            if not self._is_wanted():
                return False
            self._began = time.monotonic()
            return True
