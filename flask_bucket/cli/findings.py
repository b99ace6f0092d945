"""Findings of the checks, with advice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

#: An error must be repaired. A warning deserves a look. A note is good to know.
Level = Literal["ok", "note", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of one check. Codes do not change between versions: scripts may rely on them."""

    code: str
    level: Level
    what: str
    #: What to do; empty if there is nothing to do.
    advice: str = ""
    #: The Limiter in question; empty for the application.
    limiter: str = ""

    def as_data(self) -> dict[str, Any]:
        """Return the finding for programs."""
        return {
            "code": self.code,
            "level": self.level,
            "limiter": self.limiter or None,
            "what": self.what,
            "advice": self.advice or None,
        }
