"""From a URL to the arguments of connections: with our timeouts, and without retries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ...errors import ConfigError
from ...masking import HIDDEN, is_secret, masked_url
from . import library
from .dialing import Address
from .options import check

EXPECTED = (
    "redis://host:6379/0, rediss://host:6380/0 (TLS), unix:///path/to.sock, "
    "redis+sentinel://host:26379,host:26379/service/0, redis+cluster://host:6379,host:6379 "
    "(both also with rediss+; valkey may stand for redis)"
)

#: Scheme, topology, credentials, hosts, path and query. The user's name and password come before
#: the last @. They hold no / ? or #, or nobody could tell where they end.
_URL = re.compile(
    r"(?P<scheme>rediss?|unix)(?:(?<!unix)\+(?P<topology>sentinel|cluster))?://"
    r"(?P<credentials>[^/?#]*@)?(?P<hosts>[^/?#@]*)(?:/(?P<path>[^?#@]*))?(?P<query>\?[^#@]*)?"
)

#: A host and a port, without quoting either.
_HOST = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]]+))(?::(\d{1,5}))?", re.ASCII)

_PORTS = {"sentinel": 26379, "cluster": 6379}


@dataclass(frozen=True, slots=True)
class Place:
    """Where Redis is, and how to connect there."""

    #: "sentinel" or "cluster"; empty for one server.
    topology: str
    #: A class of redis-py's connections, and its arguments. They may hold a password.
    kind: type[Any]
    settings: Mapping[str, Any] = field(repr=False)
    #: The sentinels, or the nodes of the cluster that are known.
    nodes: tuple[Address, ...] = ()
    #: What the sentinels call the primary and its replicas.
    service: str = ""
    #: How to connect to sentinels.
    sentinel_settings: Mapping[str, Any] = field(default_factory=dict, repr=False)


def place(url: object, timeout: float, connect_timeout: float, options: Mapping[str, Any]) -> Place:
    """Read a URL.

    :raises ConfigError: if the URL or an option is wrong. No password is in it.
    """
    defaults = _defaults(timeout, connect_timeout)
    try:
        return _place(url, defaults, options)
    except (ValueError, TypeError, AttributeError, OSError, redis.RedisError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
    among = f", with the options {', '.join(sorted(options))}" if options else ""
    # Raised outside, so that the first error, whose traceback holds a password, is not its context.
    raise ConfigError(
        f"{masked_url(url)!r} cannot be used as the URL of Redis{among}: {reason}. "
        f"Expected {EXPECTED}."
    )


def _place(url: object, defaults: Mapping[str, Any], options: Mapping[str, Any]) -> Place:
    parts = _parts(url)
    sentinel_options = options.get("sentinel_kwargs", {})
    if not isinstance(sentinel_options, Mapping):
        raise TypeError("sentinel_kwargs is a dict of options")
    options = {name: value for name, value in options.items() if name != "sentinel_kwargs"}
    for some in (options, sentinel_options):
        check(some, "here")
    settings = {**defaults, **options}
    if not parts["topology"]:
        kind, settings = _settings(parts, parts["hosts"], parts["path"], settings)
        return Place("", kind, settings)
    nodes = tuple(_address(host, _PORTS[parts["topology"]]) for host in parts["hosts"].split(","))
    service, database = "", parts["path"]
    if parts["topology"] == "sentinel":
        service, _, database = database.partition("/")
        if not service:
            raise ValueError("the service that the sentinels watch is missing after the hosts")
    elif database not in ("", "0"):
        raise ValueError("a cluster has the database 0 only")
    # The host differs for each connection.
    kind, settings = _settings(parts, "", database, settings)
    if parts["topology"] == "cluster":
        return Place("cluster", kind, settings, nodes)
    for_data = ("username", "password", "db")
    others = {name: value for name, value in settings.items() if name not in for_data}
    others.update(sentinel_options)
    _sample(kind, others)
    return Place("sentinel", kind, settings, nodes, unquote(service), others)


def _parts(url: object) -> Mapping[str, str]:
    if not isinstance(url, str):
        raise TypeError(f"a URL is a text, not {type(url).__name__}")
    # Other names of the same schemes: Valkey's own, and what other libraries call a socket.
    url = re.sub(r"^redis\+unix:", "unix:", re.sub(r"^valkey", "redis", url))
    parts = _URL.fullmatch(url)
    if parts is not None:
        options = (parts["query"] or "?")[1:].split("&")
        if any("=" not in option for option in options if option):
            raise ValueError("an option after the ? has the form name=value")
        return parts.groupdict(default="")
    if re.match(r"(rediss?(\+sentinel|\+cluster)?|unix)://", url) is None:
        raise ValueError("it must begin with one of the schemes below, and //")
    raise ValueError(
        "a part of it is misplaced. In a user's name or a password, write / as %2F, ? as %3F, "
        "# as %23 and @ as %40"
    )


def _settings(
    parts: Mapping[str, str], hosts: str, path: str, settings: Mapping[str, Any]
) -> tuple[type[Any], dict[str, Any]]:
    """Return the class of connections and its arguments, after redis-py has checked them."""
    if parts["scheme"] == "unix":
        if hosts:
            raise ValueError("a socket has no host: three slashes stand before its path")
        if not path:
            raise ValueError("the path of the socket is missing")
    elif not re.fullmatch(r"\d*", path.strip("/")):
        raise ValueError("the database is a number")
    elif hosts:
        _address(hosts, 0)
    given = library.url_settings(f"{parts['scheme']}://{hosts}/{path}{parts['query']}")
    given.update(_credentials(parts["credentials"]))
    kind: type[Any] = given.pop("connection_class", redis.Connection)
    check(given, "in a URL")
    made = {**settings, **given}
    _check_certificates(made.get("ssl_cert_reqs"))
    if kind is redis.SSLConnection and str(made.get("ssl_cert_reqs", "")) not in ("none", "None"):
        made.setdefault("ssl_check_hostname", True)
    sample = _sample(kind, made)
    if kind is redis.SSLConnection and not library.checks_revocation(sample):
        library.tls_context(kind(**made))  # raises here if a file is missing
    return kind, made


def _check_certificates(wanted: object) -> None:
    """Check an option whose value redis-py's own error quotes.

    In ``?ssl_cert_reqs=none;password=...``, the value holds a password.
    """
    if isinstance(wanted, str) and wanted not in ("none", "optional", "required"):
        raise ValueError("ssl_cert_reqs is none, optional or required")


def _credentials(text: str) -> dict[str, str]:
    """Return the user and the password before the hosts. No library is given them to parse.

    An error of urllib's quotes them, if a character becomes another one when it is normalised.
    """
    user, _, password = text.removesuffix("@").partition(":")
    both = {"username": unquote(user), "password": unquote(password)}
    return {name: value for name, value in both.items() if value}


def _sample(kind: type[Any], settings: Mapping[str, Any]) -> library.Options:
    """Return a connection object, which connects to nothing, after redis-py has checked it.

    Its errors may quote what it was given, so it gets no secret.
    """
    public = {name: HIDDEN if v and is_secret(name) else v for name, v in settings.items()}
    try:
        return kind(**public)
    except TypeError as error:
        unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if unknown is None:
            raise
    name = unknown[1]
    needs_tls = name.startswith("ssl_") and kind is not redis.SSLConnection
    where = ", except over TLS (rediss://)" if needs_tls else ""
    raise TypeError(f"redis-py's connections have no option {name!r}{where}")


def _address(text: str, port: int) -> Address:
    parts = _HOST.fullmatch(text)
    if parts is None or int(parts[3] or port) > 65_535:
        raise ValueError("not every host is a name or an address, with or without a port after it")
    return parts[1] or parts[2], int(parts[3] or port)


def _defaults(timeout: float, connect_timeout: float) -> dict[str, Any]:
    """Return the arguments that all connections have, unless an option says otherwise."""
    return {
        "socket_timeout": timeout,
        "socket_connect_timeout": connect_timeout,
        # A charge is not idempotent.
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "decode_responses": False,
    }
