"""Warnings about a wrong set-up that the first request of an application shows, logged once."""

from __future__ import annotations

import logging

from flask import Request

logger = logging.getLogger("flask_bucket")


def warn_of_setup(request: Request, *, in_process: bool) -> None:
    """Log the mistakes that a request shows: several processes without Redis, or no ProxyFix.

    :param in_process: whether the buckets are kept in this process.
    """
    environ = request.environ
    if in_process and environ.get("wsgi.multiprocess"):
        logger.warning(
            "Buckets are kept in this process, and there are several: each grants every "
            "limit again. Set BUCKET_REDIS_URL (FLASK_BUCKET_REDIS_URL in the environment)."
        )
    if "HTTP_X_FORWARDED_FOR" in environ and "werkzeug.proxy_fix.orig" not in environ:
        logger.warning(
            "A request came with X-Forwarded-For, which is not read: if a proxy of yours wrote "
            "it, all clients behind that share its address. Apply "
            "werkzeug.middleware.proxy_fix.ProxyFix to the application."
        )
