"""The anatomy of a key: how a bucket's key is spelled, and how it is read back.

``{prefix}:{<client>}:<scope>:<name>``. The braces around the client stand literally: a cluster
hashes what is between them, and so keeps all buckets of a client in one slot.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b
from urllib.parse import quote, unquote, unquote_to_bytes

from .decisions import Kind
from .errors import ConfigError

#: A part of a key that is longer than this, in bytes, is replaced by a digest.
LONGEST_PART = 100

#: Starts a part that stands for another text. Percent-encoding leaves no such character.
_MARK = "#"

#: The length of a digest, with its mark.
_DIGEST_LENGTH = 33

#: Sets apart scopes that this package makes from those that endpoints and users can have.
SCOPE_MARK = "@"

#: Start the names of buckets of each kind. No spelled name begins with one.
KIND_MARKS: dict[Kind, str] = {"rate": "", "ban": "!", "slot": "@"}


def spelled(part: str) -> str:
    """Percent-encode a part of a key. An empty or a long part becomes a mark of its own.

    >>> spelled("a:b {c}")
    'a%3Ab%20%7Bc%7D'
    """
    encoded = quote(part, safe="", errors="surrogatepass")
    if len(encoded) > LONGEST_PART:
        return _digest(part.encode(errors="surrogatepass"))
    return encoded or _MARK


def _digest(part: bytes, key: bytes = b"") -> str:
    return _MARK + blake2b(part, digest_size=16, key=key).hexdigest()


def shortened(scope: str) -> str:
    """Return a scope as it stands in a key: one that is too long has digests of its long parts.

    Its short parts stay readable, such as the numbers of a limit that a function returned.

    :param scope: spelled parts with marks between them.
    """
    if len(scope) <= LONGEST_PART:
        return scope
    parts = [
        _digest(unquote_to_bytes(part))
        if len(part) > _DIGEST_LENGTH and not part.startswith(_MARK)
        else part
        for part in scope.split(SCOPE_MARK)
    ]
    short = SCOPE_MARK.join(parts)
    return short if len(short) <= LONGEST_PART else _digest(scope.encode(), b"scope")


class Spelling:
    """Spells the keys of one Limiter. No two (client, scope, name) share a key.

    :param prefix: the start of every key.
    :param secret: if given, clients are stored only as digests keyed with it.
    """

    def __init__(self, prefix: str, secret: str | None = None) -> None:
        self.prefix = prefix
        self._secret = secret.encode() if secret else None

    def client(self, client: str) -> str:
        """Return a client as it stands between the braces."""
        if self._secret is None:
            return spelled(client)
        # blake2b takes keys of up to 64 bytes. A longer secret is digested into one.
        key = self._secret if len(self._secret) <= 64 else blake2b(self._secret).digest()
        return _digest(client.encode(errors="surrogatepass"), key)

    def start(self, client: str) -> str:
        """Return the start of all keys of a client, for :func:`ending` to follow."""
        return f"{self.prefix}:{{{self.client(client)}}}"


def checked_name(name: object) -> str:
    """Return the name of a Limiter.

    :raises ConfigError: unless it can stand in a key as it is.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*", name):
        raise ConfigError(
            f"A Limiter's name is a letter, then letters, digits, '_', '.' and '-', "
            f"not {name!r}. It is part of the keys."
        )
    return name


def ending(scope: str, name: str, kind: Kind = "rate") -> str:
    """Return the rest of a key after the client.

    :param scope: spelled already.
    :param kind: of the bucket. Names of different kinds never meet.
    """
    return f":{shortened(scope)}:{KIND_MARKS[kind]}{spelled(name)}"


def keys_start(prefix: str, client: str | None = None) -> str:
    """Return the start that all keys with a prefix share, or all those of one client.

    :param client: spelled as in its keys.
    """
    return f"{prefix}:{{" if client is None else f"{prefix}:{{{client}}}:"


@dataclass(frozen=True, slots=True)
class KeyParts:
    """A key read back. The parts are spelled as in the key."""

    prefix: str
    client: str
    scope: str
    name: str

    @classmethod
    def of(cls, key: str) -> KeyParts | None:
        """Read a key; None if it is not the key of a bucket."""
        prefix, brace, rest = key.partition(":{")
        client, end, rest = rest.partition("}:")
        scope, colon, name = rest.rpartition(":")
        return cls(prefix, client, scope, name) if brace and end and colon else None

    @property
    def kind(self) -> Kind:
        """The kind of the bucket."""
        marks = (kind for kind, mark in KIND_MARKS.items() if mark and self.name.startswith(mark))
        return next(marks, "rate")

    @property
    def ending(self) -> str:
        """The rest of the key after the client, as :func:`ending` makes it."""
        return f":{self.scope}:{self.name}"

    def readable(self) -> KeyParts:
        """Return the parts as they were written, except for digests."""
        return KeyParts(self.prefix, *map(unquote, (self.client, self.scope, self.name)))


def belongs(key: str, client: str | None, prefix: str | None) -> bool:
    """Return whether a key is one of a client's, and begins with a prefix; None is any."""
    parts = KeyParts.of(key)
    if parts is None:  # spelled by hand
        return client is None and prefix is None
    return client in (None, parts.client) and prefix in (None, parts.prefix)
