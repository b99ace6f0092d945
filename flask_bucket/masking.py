"""Masking: settings as they may be shown, in errors, logs and reprs. One place for all secrets.

Error trackers store messages and the reprs of local variables. So nothing that may be a password
is in either, however malformed the setting is: what cannot be told apart from one is hidden.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

HIDDEN = "***"

#: What a setting or an option is called that holds a secret, or names a user.
_SECRET = re.compile("pass|secret|token|credential|user|auth|key_?data", re.IGNORECASE)

#: A URL whose every part is where it belongs.
_URL = re.compile(
    r"(?P<scheme>[a-z]+(?:\+[a-z]+)?://)(?P<credentials>[^/?#]*@)?"
    r"(?P<hosts>[\w.,:\[\]%-]*)(?P<path>/[^?#@]*)?(?P<query>\?[^#@]*)?",
    re.ASCII,
)

#: Hosts with or without ports. Without credentials before them, other text may be a password.
_HOSTS = re.compile(r"(?:(?:[\w.-]*|\[[0-9a-fA-F:.%]+\])(?::\d{1,5})?,?)*", re.ASCII)


def masked_url(url: object) -> str:
    """Return a URL without its user, its password, and the values of its options.

    >>> masked_url("redis://:hunter2@redis.internal:6379/0?password=hunter2")
    'redis://***@redis.internal:6379/0?password=***'
    >>> masked_url("redis://:hunter2#x@host")
    '***'
    """
    parts = _URL.fullmatch(url) if isinstance(url, str) else None
    if parts is None or not _HOSTS.fullmatch(parts["hosts"]):
        return HIDDEN
    credentials = f"{HIDDEN}@" if parts["credentials"] else ""
    query = re.sub("=[^&]*", f"={HIDDEN}", parts["query"] or "")
    return f"{parts['scheme']}{credentials}{parts['hosts']}{parts['path'] or ''}{query}"


def masked(name: str, value: object) -> object:
    """Return the value of a setting as it may be shown.

    >>> masked("BUCKET_KEY_SECRET", "hunter2")
    '***'
    >>> masked("BUCKET_REDIS_OPTIONS", {"password": "hunter2", "db": 1})
    {'password': '***', 'db': 1}
    """
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {key: masked(str(key), one) for key, one in value.items()}
    if name.lower().endswith("options"):
        return f"a {type(value).__name__}"  # of which any part may be a password
    if name.lower().endswith("url"):
        return masked_url(value)
    return HIDDEN if _SECRET.search(name) else value


def shown(value: object) -> str:
    """Return how to show a value that is not what was expected, and may be a URL.

    >>> shown(5), shown("redis://:hunter2@host")
    ('5', "'redis://***@host'")
    """
    if isinstance(value, (str, bytes)):
        return repr(masked_url(value))
    return f"{value!r:.200}"


def without(text: str, secrets: Iterable[Any]) -> str:
    """Return a text in which these secrets do not stand, such as the message of a library."""
    for secret in sorted({str(one) for one in secrets if one}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text
