"""The request that is being answered."""

from __future__ import annotations

from flask import Request, request


def current_request() -> Request:
    """Return the current request itself. Each access through Flask's proxy costs time."""
    found: Request = request._get_current_object()  # type: ignore[attr-defined]  # the proxy's
    return found
