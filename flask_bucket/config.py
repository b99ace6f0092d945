"""Settings: the BUCKET_* keys of an application's configuration, checked."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, get_type_hints

from .durations import checked_lease, is_number
from .errors import ConfigError
from .headers import HEADER_NAME, NAMED, NAMES, STYLES
from .masking import masked
from .moving import KEYS
from .typos import meant

PREFIX = "BUCKET_"
POLICIES = ("allow", "deny", "local")
FORMATS = ("json", "problem")

#: Options of a connection that have a key of their own, and that key.
OWN_OPTIONS = {
    "url": "BUCKET_REDIS_URL",
    "timeout": "BUCKET_TIMEOUT",
    "connect_timeout": "BUCKET_CONNECT_TIMEOUT",
    "max_connections": "BUCKET_MAX_CONNECTIONS",
    "key_prefix": "BUCKET_KEY_PREFIX",
}


def _refuse(key: str, value: object, expected: str) -> ConfigError:
    return ConfigError(f"{key} is {masked(key, value)!r}; expected {expected}.")


def _switch(key: str, value: object) -> bool:
    # The environment's "False" is a text, which is true.
    words = {"true": True, "false": False, "1": True, "0": False}
    if isinstance(value, (str, int)) and str(value).lower() in words:
        return words[str(value).lower()]
    if not isinstance(value, bool):
        raise _refuse(key, value, "True or False")
    return value


def _text(key: str, value: object) -> str | None:
    if value == "":
        raise _refuse(key, value, "a text that is not empty; leave it unset to do without")
    if value is not None and not isinstance(value, str):
        raise _refuse(key, value, "a text (in the environment, put it in quotes)")
    return value


def _prefix(key: str, value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_.:-]{1,100}", value):
        raise _refuse(key, value, "1 to 100 letters, digits and any of _ . : -")
    return value


def _number(least: float, most: float, unit: str) -> Callable[[str, object], float]:
    def number(key: str, value: object) -> float:
        if not is_number(value) or not least < value <= most:
            raise _refuse(key, value, f"a number of {unit} above {least:g}, at most {most:g}")
        return float(value)

    return number


def _whole(least: int, most: int, unit: str) -> Callable[[str, object], int]:
    def whole(key: str, value: object) -> int:
        if type(value) is not int or not least <= value <= most:
            raise _refuse(key, value, f"a whole number of {unit} from {least} to {most}")
        return value

    return whole


def _one_of(choices: Sequence[str]) -> Callable[[str, object], str]:
    def one(key: str, value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            raise _refuse(key, value, "one of " + ", ".join(map(repr, choices)))
        return value

    return one


def _words(key: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [word.strip() for word in value.split(",") if word.strip()]
    words = tuple(value) if isinstance(value, Iterable) else (None,)
    if not all(isinstance(word, str) for word in words):
        raise _refuse(key, value, "a list of texts")
    return words


def _methods(key: str, value: object) -> tuple[str, ...]:
    return tuple(word.upper() for word in _words(key, value))


def _headers(key: str, value: object) -> tuple[str, ...] | Mapping[str, str]:
    if isinstance(value, Mapping):
        return _header_names(key, value)
    words = () if isinstance(value, bool) else _words(key, value)
    unknown = [word for word in words if word not in STYLES]
    if unknown or isinstance(value, bool):
        raise _refuse(
            key,
            value,
            f"any of {', '.join(map(repr, STYLES))}; () for no headers; or a mapping of names, "
            "such as {'limit': 'X-My-Limit'}",
        )
    for word in words:
        same = [repr(other) for other in words if STYLES[other] is STYLES[word]]
        if len(same) > 1:
            raise _refuse(key, value, f"each style once; {' and '.join(same)} are the same")
    return words


def _header_names(key: str, value: Mapping[Any, Any]) -> Mapping[str, str]:
    for what, name in value.items():
        if what not in NAMED:
            raise _refuse(key, value, f"names for any of {', '.join(NAMED)}, not for {what!r}")
        if not isinstance(name, str) or not HEADER_NAME.fullmatch(name):
            raise _refuse(key, value, f"a header's name such as 'X-My-Limit', not {name!r}")
    all_names = [name.lower() for name in {**NAMES, **value}.values()]
    for name in value.values():
        if all_names.count(name.lower()) > 1:
            raise _refuse(key, value, f"a name of its own for each header; {name!r} stands twice")
    return dict(value)


def _options(key: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise _refuse(key, value, "a dict of redis-py's client arguments")
    for name, own in OWN_OPTIONS.items():
        if name in value:
            raise ConfigError(f"{key} holds {name!r}, which has a key of its own: set {own}.")
    if type(value.get("db", 0)) is not int:
        raise _refuse(f"{key}['db']", value["db"], "a whole number")
    return dict(value)


def _workers(key: str, value: object) -> int | None:
    return None if value is None else _whole(1, 100_000, "workers")(key, value)


def _any(key: str, value: object) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of one application. Each attribute is the key ``BUCKET_<ATTRIBUTE>``."""

    #: False: no hook does anything, and no connection is made.
    enabled: Annotated[bool, _switch] = True
    #: Where the buckets are; in this process when unset.
    redis_url: Annotated[str | None, _text] = field(default=None, repr=False)
    #: Further arguments for redis-py's connections.
    redis_options: Annotated[Mapping[str, Any], _options] = field(default_factory=dict, repr=False)
    #: The start of every key.
    key_prefix: Annotated[str, _prefix] = "bucket"
    #: If set, clients are stored only as digests keyed with it.
    key_secret: Annotated[str | None, _text] = field(default=None, repr=False)
    #: Limits for each endpoint that has none of its own.
    default_limits: Annotated[Any, _any] = None
    #: Limits for the application as a whole.
    application_limits: Annotated[Any, _any] = None
    #: Bans of clients that go on after being refused.
    bans: Annotated[Any, _any] = None
    #: Methods that are free of default, blueprint and application limits.
    exempt_methods: Annotated[tuple[str, ...], _methods] = ("OPTIONS",)
    #: Leading bits of an IPv6 address that make a client.
    ipv6_prefix: Annotated[int, _whole(1, 128, "bits")] = 64
    #: Seconds that a call to Redis may take, in all.
    timeout: Annotated[float, _number(0, 3600, "seconds")] = 0.1
    #: Seconds that making a connection may take, in the background.
    connect_timeout: Annotated[float, _number(0, 3600, "seconds")] = 2.0
    #: Connections in each process.
    max_connections: Annotated[int, _whole(1, 100_000, "connections")] = 50
    #: The policy for requests while Redis is out of reach: allow, deny, local.
    on_error: Annotated[str, _one_of(POLICIES)] = "allow"
    #: Seconds between tries during an outage.
    recovery_interval: Annotated[float, _number(0, 3600, "seconds")] = 1.0
    #: The part of each limit that one worker grants on its own, under the policy local.
    local_share: Annotated[float, _number(0, 1, "shares")] = 1.0
    #: How many refusals each process remembers; 0 is off.
    refusal_cache: Annotated[int, _whole(0, 100_000_000, "entries")] = 10_000
    #: Header styles: x-ratelimit, ietf, ietf-11; or names of one's own.
    headers: Annotated[tuple[str, ...] | Mapping[str, str], _headers] = ("x-ratelimit",)
    #: The body of a refusal: json, problem.
    error_format: Annotated[str, _one_of(FORMATS)] = "json"
    #: True: every limit is a dry-run limit.
    dry_run: Annotated[bool, _switch] = False
    #: Seconds for which each worker takes tokens of hot buckets ahead; 0 is off.
    lease: Annotated[float, checked_lease] = 0.0
    #: The number of workers on all machines, which leases need; by default WEB_CONCURRENCY.
    workers: Annotated[int | None, _workers] = None

    @property
    def known_workers(self) -> int | None:
        """The number of workers, if it is known."""
        text = os.environ.get("WEB_CONCURRENCY", "")
        told = int(text) if re.fullmatch("[1-9][0-9]{0,5}", text) else None
        return told if self.workers is None else self.workers

    @classmethod
    def load(cls, settings: Mapping[str, Any]) -> Config:
        """Read and check the BUCKET_* keys.

        :raises ConfigError: for a value that is not one, and for a key that resembles one of
            ours or is Flask-Limiter's, renamed. Other keys are the application's.
        """
        hints = get_type_hints(cls, include_extras=True)
        checks = {
            PREFIX + name.upper(): (name, hint.__metadata__[0]) for name, hint in hints.items()
        }
        values = {}
        for key, value in settings.items():
            if not key.startswith(PREFIX):
                continue
            if key in checks:
                name, check = checks[key]
                values[name] = check(key, value)
            else:
                _refuse_lookalike(key, checks)
        return cls(**values)


def _refuse_lookalike(key: str, known: Iterable[str]) -> None:
    """Refuse a key that was meant to be ours. BUCKET_NAME, of an object storage, is not refused."""
    name = key.removeprefix(PREFIX)
    # The prefix that all keys share would make any two of them look alike.
    if close := meant(name, [k.removeprefix(PREFIX) for k in known], at_most=2):
        raise ConfigError(f"{key} is not a setting of flask_bucket. Did you mean {PREFIX}{close}?")
    if instead := KEYS.get(name):
        raise ConfigError(
            f"{key} is not a setting of flask_bucket. In place of Flask-Limiter's "
            f"RATELIMIT_{name}, {instead}."
        )
