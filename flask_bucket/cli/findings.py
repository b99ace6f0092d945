"""Findings: what a check found, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

#: How bad it is: an error must be repaired, a warning looked at, a note known.
Level = Literal["ok", "note", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found. Codes are stable: scripts may rely on them."""

    code: str
    level: Level
    what: str
    #: What to do about it; empty if there is nothing to do.
    advice: str = ""
    #: The Limiter that it is about; empty for the application.
    limiter: str = ""

    def as_data(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "code": self.code,
            "level": self.level,
            "limiter": self.limiter or None,
            "what": self.what,
            "advice": self.advice or None,
        }
