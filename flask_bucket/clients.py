"""Who the client is: key functions, and the one spelling of an address."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from uuid import UUID

from flask import current_app

from .current import current_request
from .errors import ConfigError
from .headers import HEADER_NAME

KeyFunc = Callable[[], str | int | UUID | None]

#: A longer text is not kept in a cache: clients choose their keys, and would choose its size.
LONGEST_CACHED = 200

DEFAULT_IPV6_PREFIX = 64

#: IPv6 addresses that stand for IPv4 ones: those of a socket that serves both (RFC 4291, section
#: 2.5.5.2), and those of a NAT64 translator (RFC 6052, section 2.1).
CARRIERS = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))

#: Where an application keeps the warnings about missing addresses that it has logged.
_WARNED = "flask_bucket_no_address"

#: The addresses that servers and proxies report for a client at a unix socket.
_UNIX_SOCKETS = re.compile("|localhost|<local>|unix:.*", re.DOTALL)

_AT_A_SOCKET = (
    "A request came from %.100r, as from a unix socket. Such clients have no address, and all of "
    "them share their buckets. Let the proxy in front set X-Forwarded-For, and apply "
    "werkzeug.middleware.proxy_fix.ProxyFix; or give another key_func."
)

_NO_ADDRESS = (
    "A request came from %.100r, which is not an IP address. All clients that are reported so "
    "share their buckets. Let the proxy in front report the address of the client, without leading "
    "zeros in its numbers; or give another key_func."
)

Address = IPv4Address | IPv6Address

logger = logging.getLogger("flask_bucket")


def client_address() -> str:
    """Return the client's address, as the key of its buckets.

    An IPv6 address is cut to its network (``BUCKET_IPV6_PREFIX``, default /64), since a client that
    has one of its addresses usually has all of them. An IPv4 address carried in IPv6 is unwrapped.
    A zone is dropped, and so is a port, which some proxies add. Behind a proxy, apply
    :class:`werkzeug.middleware.proxy_fix.ProxyFix`: X-Forwarded-For is not read here, because
    anyone may write it.
    """
    given = current_request().remote_addr or ""
    prefix = DEFAULT_IPV6_PREFIX
    if ":" in given:
        prefix = current_app.config.get("BUCKET_IPV6_PREFIX", prefix)
    address = normal_address(given, prefix) if len(given) <= LONGEST_CACHED else None
    if address is None:
        _warn_of_no_address(given)
        return given
    return address


def _warn_of_no_address(given: str) -> None:
    """Log that clients cannot be told apart, once for each reason and application."""
    warning = _AT_A_SOCKET if _UNIX_SOCKETS.fullmatch(given) else _NO_ADDRESS
    logged = current_app.extensions.setdefault(_WARNED, set())
    if warning not in logged:
        logged.add(warning)
        logger.warning(warning, given)


def address_of(text: str) -> Address | None:
    """Return the address that a text holds, beside a port or a zone; None if it holds none.

    >>> address_of("[2001:db8::7]:443")
    IPv6Address('2001:db8::7')
    >>> address_of("::ffff:203.0.113.7")
    IPv4Address('203.0.113.7')
    """
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv4Address):
        return address
    if any(address in carrier for carrier in CARRIERS):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return IPv6Address(int(address))  # without a zone


@lru_cache(maxsize=10_000)
def normal_address(text: str, ipv6_prefix: int = DEFAULT_IPV6_PREFIX) -> str | None:
    """Return one spelling for all addresses that belong to the same client; None for others.

    >>> normal_address("2001:db8::17")
    '2001:db8::/64'
    """
    address = address_of(text)
    if address is None:
        return None
    if isinstance(address, IPv4Address) or ipv6_prefix == 128:
        return str(address)
    return str(IPv6Network((int(address), ipv6_prefix), strict=False))


def request_header(name: str) -> KeyFunc:
    """Make a key function that returns a header's value: ``request_header("X-API-Key")``.

    A request in which the header is absent or empty has no key (None), and the limit does not
    apply to it: put a limit by address beside it.

    :raises ConfigError: if the name is not a header's name.
    """
    if not isinstance(name, str) or not HEADER_NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is not a header's name. Expected one such as 'X-API-Key'.")
    return _reading(name)


@lru_cache
def _reading(name: str) -> KeyFunc:
    """Return one and the same function for a name: a ban counts by the same key function."""

    def header() -> str | None:
        return current_request().headers.get(name) or None

    header.__name__ = header.__qualname__ = f"request_header({name!r})"
    return header
