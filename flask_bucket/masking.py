"""Masking: settings as they may be shown, in errors, logs and reprs. One place for all secrets.

Error trackers store messages and the reprs of local variables. So neither holds anything that may
be a password, however malformed the setting is. Any part that may be one by mistake is hidden.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from inspect import isroutine

HIDDEN = "***"

#: Names of settings and options that hold a secret, or name a user.
_SECRET = re.compile("pass|secret|token|credential|user|auth|key_?data", re.IGNORECASE)

#: A URL whose every part is where it belongs.
_URL = re.compile(
    r"(?P<scheme>[a-z]+(?:\+[a-z]+)?://)(?P<credentials>[^/?#]*@)?"
    r"(?P<hosts>[\w.,:\[\]%-]*)(?P<path>/[^?#@]*)?(?:\?(?P<query>[^#@]*))?",
    re.ASCII,
)

#: The number of a database, and the path of a socket. Any other path may be a password.
_DATABASE, _SOCKET = re.compile(r"/\d{0,5}"), re.compile(r"(?:redis\+|valkey\+)?unix://")

#: Hosts with or without ports. Without credentials before them, other text may be a password.
_HOSTS = re.compile(r"(?:(?:[\w.-]*|\[[0-9a-fA-F:.%]+\])(?::\d{1,5})?,?)*", re.ASCII)


def masked_url(url: object) -> str:
    """Return a URL without its user, its password, and anything that may be one by mistake.

    Its hosts, the number of its database, the path of a socket and the names of options are left.

    >>> masked_url("redis://:hunter2@redis.internal:6379/0?password=hunter2")
    'redis://***@redis.internal:6379/0?password=***'
    >>> masked_url("redis://redis.internal:6379/hunter2")
    'redis://redis.internal:6379/***'
    >>> masked_url("redis://:hunter2#x@host")
    '***'
    """
    parts = _URL.fullmatch(url) if isinstance(url, str) else None
    if parts is None or not _HOSTS.fullmatch(parts["hosts"]):
        return HIDDEN
    scheme, hosts, path = parts["scheme"], parts["hosts"], parts["path"] or ""
    if _SOCKET.fullmatch(scheme):
        if hosts:
            return HIDDEN
    elif path and not _DATABASE.fullmatch(path):
        path = f"/{HIDDEN}"
    credentials = f"{HIDDEN}@" if parts["credentials"] else ""
    return f"{scheme}{credentials}{hosts}{path}{_masked_query(parts['query'])}"


def _masked_query(query: str | None) -> str:
    """Return the options of a URL by name. A part without a name may be a password."""
    if not query:
        return ""
    named = (part.partition("=") for part in query.split("&"))
    return "?" + "&".join(f"{name}={HIDDEN}" if equals else HIDDEN for name, equals, _ in named)


def masked(name: str, value: object) -> object:
    """Return the value of a setting as it may be shown.

    >>> masked("BUCKET_KEY_SECRET", "hunter2")
    '***'
    >>> masked("BUCKET_REDIS_OPTIONS", {"password": "hunter2", "db": 1})
    {'password': '***', 'db': 1}
    """
    if value is None or value == "":
        return value
    if is_secret(name):
        return HIDDEN
    if name.lower().endswith("options"):
        return _masked_options(value)
    if isinstance(value, Mapping):
        return {key: masked(str(key), one) for key, one in value.items()}
    if name.lower().endswith("url"):
        return masked_url(value)
    return value


def _masked_options(value: object) -> object:
    """Return options as they may be shown. Any text among them may be a password."""
    if not isinstance(value, Mapping):
        return f"a {type(value).__name__}"
    return {
        key: masked(str(key), one) if isinstance(one, (int, float)) else HIDDEN
        for key, one in value.items()
    }


def is_secret(name: str) -> bool:
    """Return whether a setting or an option with this name holds a secret, or names a user."""
    return _SECRET.search(name) is not None


def shown(value: object) -> str:
    """Return how to show an unexpected value, which may be a URL.

    Any part of a list or of an object, such as a pool of connections, may be a password.

    >>> shown(5), shown("redis://:hunter2@host"), shown(["hunter2"])
    ('5', "'redis://***@host'", 'an instance of list')
    """
    if isinstance(value, (str, bytes)):
        return repr(masked_url(value))
    if value is None or isinstance(value, (int, float, type)) or isroutine(value):
        return f"{value!r:.200}"
    return f"an instance of {type(value).__qualname__}"
