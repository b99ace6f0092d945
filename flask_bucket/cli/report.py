"""The report of ``flask bucket simulate`` on limits given by hand: tables, and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import click

from ..limits import SECOND
from .layout import Table
from .logs import Log
from .output import counted, duration, print_table, print_text
from .replay import Judgement
from .traffic import Traffic


@dataclass(frozen=True, slots=True)
class Report:
    """A simulation of limits given by hand."""

    traffic: Traffic
    logs: Sequence[Log]
    #: The judgement of all limits as one decision. None if each was judged alone.
    together: Judgement | None
    judgements: Sequence[Judgement]
    #: The judgements of the suggested limits. None if no suggestion was asked for.
    suggestions: Sequence[Judgement] | None
    #: The number of most refused clients to name.
    worst: int
    #: The share of requests that the suggestions refuse at most.
    share: Fraction | None = None

    def as_data(self) -> dict[str, Any]:
        """Return the report for programs."""
        limits = [self._judged(judgement) for judgement in self.judgements]
        for limit, suggestion in zip(limits, self.suggestions or (), strict=False):
            limit["suggestion"] = self._judged(suggestion)
        data = {
            "requests": self.traffic.requests,
            "clients": len(self.traffic.times),
            "nameless": self.traffic.nameless,
            **about(self.logs),
            "limits": limits,
        }
        if self.together is not None:
            allowed = self.together.requests - self.together.refused
            data |= {"allowed": allowed, "together": self._judged(self.together)}
            data["refused"] = self.together.refused
        return data

    def _judged(self, judgement: Judgement) -> dict[str, Any]:
        requests = self.traffic.times
        return {
            "limit": None if judgement.limit is None else str(judgement.limit),
            "refused": judgement.refused,
            "share": float(judgement.share),
            "refused_clients": len(judgement.refused_by_client),
            "refused_clients_share": float(judgement.share_of_clients),
            "longest_wait": judgement.longest_wait / SECOND,
            "worst": [
                {"client": client, "refused": refused, "requests": len(requests[client])}
                for client, refused in judgement.worst(self.worst)
            ],
        }

    def print(self) -> None:
        """Print the report for people."""
        clients = counted(len(self.traffic.times), "client")
        summary = f"{counted(self.traffic.requests, 'request')} from {clients}"
        if self.traffic.nameless:
            summary += f"; {counted(self.traffic.nameless, 'request')} without a user left out"
        print_summary(summary, self.logs)
        together = () if self.together is None else (self.together,)
        print_table(_overview("", (*self.judgements, *together)))
        if self.suggestions is not None and self.share is not None:
            click.echo()
            title = (
                f"Suggested bursts, to refuse at most {float(self.share * 100):g}% of the requests:"
            )
            print_table(_overview(title, self.suggestions))
        for judgement in together or self.judgements:
            if self.worst and judgement.refused:
                click.echo()
                print_table(self._worst(judgement))

    def _worst(self, judgement: Judgement) -> Table:
        rows = [
            (client, f"{refused:,}", f"{len(self.traffic.times[client]):,}")
            for client, refused in judgement.worst(self.worst)
        ]
        by = "all together" if judgement.limit is None else str(judgement.limit)
        headings = ("client", "refused", "requests")
        return Table(f"Most refused by {by}:", headings, rows, frozenset(headings[1:]))


def about(logs: Sequence[Log]) -> dict[str, Any]:
    """Return the malformed lines of logs for programs."""
    first = next((log for log in logs if log.first is not None), None)
    data: dict[str, Any] = {"malformed": sum(log.malformed for log in logs)}
    data["first_malformed"] = None
    if first is not None and first.first is not None:
        number, text = first.first
        data["first_malformed"] = {
            "log": first.name,
            "line": number,
            "text": text.decode(errors="backslashreplace"),
        }
    return data


def print_summary(summary: str, logs: Sequence[Log]) -> None:
    """Print a summary, and the first malformed line if there is one."""
    malformed = sum(log.malformed for log in logs)
    if malformed:
        summary += f"; {counted(malformed, 'malformed line')} left out"
    print_text(summary + ".")
    first = next((log for log in logs if log.first is not None), None)
    if first is not None:
        print_text(f"The first malformed line is {first.first_malformed()}")
    click.echo()


def _overview(title: str, judgements: Sequence[Judgement]) -> Table:
    headings = ("limit", "refused", "share", "clients affected", "longest wait")
    rows = [
        (
            "all together" if j.limit is None else str(j.limit),
            f"{j.refused:,}",
            percentage(j.share),
            f"{len(j.refused_by_client):,} ({percentage(j.share_of_clients)})",
            duration(j.longest_wait / SECOND) if j.refused else "-",
        )
        for j in judgements
    ]
    return Table(title, headings, rows, frozenset(headings[1:]))


def percentage(share: Fraction) -> str:
    """Write a share. A small one must not look like 0%, and a large one not like 100%."""
    text = f"{float(share * 100):.2f}%"
    if share and text == "0.00%":
        return "<0.01%"
    return ">99.99%" if share < 1 and text == "100.00%" else text
