"""The request that is being answered."""

from __future__ import annotations

from flask import Request, request


def current_request() -> Request:
    """Return the current request itself: each look through Flask's proxy takes its time."""
    found: Request = request._get_current_object()  # type: ignore[attr-defined]  # the proxy's
    return found
