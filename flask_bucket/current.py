"""The request that is being answered, and its application.

Each access through one of Flask's proxies costs time, so both are taken out of them once.
"""

from __future__ import annotations

from flask import Flask, Request, current_app, request


def current_request() -> Request:
    """Return the current request itself."""
    found: Request = request._get_current_object()  # type: ignore[attr-defined]  # a proxy has it
    return found


def current_application() -> Flask:
    """Return the current application itself."""
    found: Flask = current_app._get_current_object()  # type: ignore[attr-defined]  # a proxy has it
    return found
