"""The report of ``flask bucket simulate`` on an application's limits: tables, and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import nsmallest
from typing import Any

import click

from .app_replay import AppReplay, LimitOf, Tally
from .layout import Table
from .logs import Log
from .output import counted, print_table, print_text
from .report import about, percentage, print_summary

#: Stands for the endpoint of URLs that no route matches.
_NO_ROUTE = "(no route)"


@dataclass(frozen=True, slots=True)
class AppReport:
    """A simulation of an application's own limits."""

    replay: AppReplay
    logs: Sequence[Log]
    #: Lines of the logs without a request.
    without_request: int
    #: The number of most refused clients to name.
    worst: int

    def as_data(self) -> dict[str, Any]:
        """Return the report for programs."""
        total = self.replay.total
        return {
            "requests": total.requests,
            "allowed": total.requests - total.refused,
            "refused": total.refused,
            "clients": len(self.replay.clients),
            "without_request": self.without_request,
            **about(self.logs),
            "endpoints": [
                {"endpoint": endpoint, **_counts(tally)} for endpoint, tally in self._endpoints()
            ],
            "limits": [
                {
                    "endpoint": of.endpoint,
                    "limit": of.limit,
                    "name": of.name,
                    "source": of.source,
                    "limiter": of.limiter,
                    "dry_run": of.dry_run,
                    **_counts(tally),
                }
                for of, tally in self._limits()
            ],
            "worst": [
                {"client": client, "refused": refused, "requests": self.replay.clients[client]}
                for client, refused in self._worst()
            ],
            "assumptions": self.replay.evidence.assumptions,
        }

    def print(self) -> None:
        """Print the report for people."""
        total, clients = self.replay.total, counted(len(self.replay.clients), "client")
        share = percentage(_share(total))
        summary = (
            f"{counted(total.requests, 'request')} from {clients}: "
            f"{total.requests - total.refused:,} allowed, {total.refused:,} refused ({share})"
        )
        if self.without_request:
            summary += f"; {counted(self.without_request, 'line')} without a request left out"
        print_summary(summary, self.logs)
        print_table(self._endpoint_table())
        click.echo()
        print_table(self._limit_table())
        if self.worst and total.refused:
            click.echo()
            rows = [(c, f"{n:,}", f"{self.replay.clients[c]:,}") for c, n in self._worst()]
            headings = ("client", "refused", "requests")
            print_table(Table("Most refused:", headings, rows, frozenset(headings[1:])))
        if self.replay.evidence.assumptions:
            click.echo("\nThe log does not tell everything:")
            for assumption in self.replay.evidence.assumptions:
                print_text(assumption, item=True)

    def _endpoints(self) -> list[tuple[str | None, Tally]]:
        """Return the endpoints with the most refusals first, then those with the most requests."""
        return sorted(
            self.replay.endpoints.items(),
            key=lambda of: (-of[1].refused, -of[1].requests, of[0] or ""),
        )

    def _limits(self) -> list[tuple[LimitOf, Tally]]:
        return sorted(
            self.replay.limits.items(),
            key=lambda of: (-of[1].refused, -of[1].requests, of[0].endpoint or "", of[0].limit),
        )

    def _worst(self) -> list[tuple[str, int]]:
        refused = self.replay.refused_clients.items()
        return nsmallest(self.worst, refused, key=lambda of: (-of[1], of[0]))

    def _endpoint_table(self) -> Table:
        headings = ("endpoint", "requests", "refused", "share")
        rows = [(endpoint or _NO_ROUTE, *_cells(tally)) for endpoint, tally in self._endpoints()]
        return Table("", headings, rows, frozenset(headings[1:]))

    def _limit_table(self) -> Table:
        headings = ("limit", "endpoint", "source", "requests", "refused", "share")
        rows = [
            (
                of.limit,
                of.endpoint or _NO_ROUTE,
                of.source + (" (dry run)" if of.dry_run else ""),
                *_cells(tally),
            )
            for of, tally in self._limits()
        ]
        return Table("", headings, rows, frozenset(headings[3:]))


def _counts(tally: Tally) -> dict[str, int]:
    return {"requests": tally.requests, "refused": tally.refused}


def _cells(tally: Tally) -> tuple[str, str, str]:
    return f"{tally.requests:,}", f"{tally.refused:,}", percentage(_share(tally))


def _share(tally: Tally) -> Fraction:
    return Fraction(tally.refused, tally.requests) if tally.requests else Fraction(0)
