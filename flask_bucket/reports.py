"""Reports: the signals and log records about an application's limits."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence

from flask import Flask, request

from .bills import Bill, Item
from .decisions import Charge, Decision, Outcome
from .lows import Lows
from .signals import client_banned, limit_exceeded, limit_low

logger = logging.getLogger("flask_bucket")


class Reports:
    """Tells of refusals and low buckets.

    :param limiter: the Limiter, for those who receive its signals.
    """

    def __init__(self, app: Flask, limiter: object) -> None:
        self._app = app
        self._limiter = limiter
        self._lows = Lows()
        #: When a refusal in a dry run was last logged, in monotonic seconds.
        self._dry_run_logged = float("-inf")
        #: When a ban was last logged, in monotonic seconds.
        self._ban_logged = float("-inf")

    def charged(self, decision: Decision, bill: Bill) -> None:
        """Tell what dry-run limits would have refused, and which buckets have fallen low."""
        if bill.shadow:
            self._dry_run(decision)
        if bill.warns:
            self._low(self._lows.after_charge(bill, decision))

    def settled(
        self, taken: Iterable[Item], corrections: Sequence[Charge], decision: Decision
    ) -> None:
        """Tell which buckets have fallen low by settling."""
        self._low(self._lows.after_settling(taken, corrections, decision))

    def refused(self, decision: Decision, outcome: Outcome) -> None:
        """Tell of a refusal.

        :param outcome: the binding one.
        """
        if limit_exceeded.receivers:
            limit_exceeded.send(self._app, limiter=self._limiter, decision=decision)
        if logger.isEnabledFor(logging.INFO):
            # Endpoints are the application's words, and keys are spelled: both can be printed.
            endpoint = request.endpoint or "no endpoint"
            logger.info("Refused by %s at %s: %s", _named(outcome), endpoint, outcome.key)

    def banned(self, outcomes: Iterable[Outcome]) -> None:
        """Tell of bans that begin: in a signal each, and at most once a second in the log."""
        for outcome in outcomes:
            client_banned.send(self._app, limiter=self._limiter, outcome=outcome)
            now = time.monotonic()
            if now - self._ban_logged >= 1:
                self._ban_logged = now
                text = "A client is banned for %g s, after refusals by %s: %s"
                # Keys are spelled: whatever a client sends as one can be printed.
                logger.warning(text, outcome.retry_after or 0, outcome.limit, outcome.key)

    def _dry_run(self, decision: Decision) -> None:
        """Tell what dry-run limits would have refused: in a signal, and at most once a second
        in the log."""
        refused = [o for o in decision.outcomes if o.shadow and not o.allowed]
        if not refused:
            return
        if decision.allowed:  # else the refusal sends the signal
            limit_exceeded.send(self._app, limiter=self._limiter, decision=decision)
        now = time.monotonic()
        if now - self._dry_run_logged >= 1:
            self._dry_run_logged = now
            names = " and ".join(map(_named, refused))
            logger.warning("Dry run: %s would have refused a request.", names)

    def _low(self, outcomes: Sequence[Outcome]) -> None:
        """Send a signal for each bucket that has fallen low."""
        for outcome in outcomes:
            limit_low.send(self._app, limiter=self._limiter, outcome=outcome)


def _named(outcome: Outcome) -> str:
    """Name what refused, for people."""
    return f"a ban after {outcome.limit}" if outcome.kind == "ban" else str(outcome.limit)
