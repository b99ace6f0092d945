"""Raises a helpful ImportError: code for Flask-Limiter imports its key functions from here."""

raise ImportError(
    "flask_bucket has no util. In place of get_remote_address, write: from flask_bucket import "
    "client_address. It is the default, so that Limiter(app) needs no key_func."
)
