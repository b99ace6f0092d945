"""Who the client is: key functions, and the one spelling of an address."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address
from uuid import UUID

from flask import current_app, request

from .errors import ConfigError

KeyFunc = Callable[[], str | int | UUID | None]

#: A longer text is not kept in a cache: clients choose their keys, and would choose its size.
LONGEST_CACHED = 200

DEFAULT_IPV6_PREFIX = 64

#: Where an application remembers that an empty address was logged.
_WARNED = "flask_bucket_empty_address"

logger = logging.getLogger("flask_bucket")


def client_address() -> str:
    """Return the client's address, as the key of its buckets.

    An IPv6 address is cut to its network (``BUCKET_IPV6_PREFIX``, default /64), since whoever
    has one such address has them all. An IPv4 address mapped into IPv6 is unwrapped. Behind a
    proxy, apply :class:`werkzeug.middleware.proxy_fix.ProxyFix`: X-Forwarded-For is not read
    here, because anyone may write it.
    """
    address = request.remote_addr or ""
    if not address:
        _warn_of_empty_address()
    if ":" not in address:
        return address  # IPv4, of which there is one spelling, or a host's name
    prefix = current_app.config.get("BUCKET_IPV6_PREFIX", DEFAULT_IPV6_PREFIX)
    return normal_address(address, prefix) if len(address) <= LONGEST_CACHED else address


def _warn_of_empty_address() -> None:
    """Log, once for an application, that all its clients are one."""
    if not current_app.extensions.get(_WARNED):
        current_app.extensions[_WARNED] = True
        logger.warning(
            "A request has no client address, as behind a unix socket, so all such clients share "
            "their buckets. Let the proxy in front set X-Forwarded-For, and apply "
            "werkzeug.middleware.proxy_fix.ProxyFix; or give another key_func."
        )


@lru_cache(maxsize=10_000)
def normal_address(address: str, ipv6_prefix: int = DEFAULT_IPV6_PREFIX) -> str:
    """Return one spelling for all addresses that belong to the same client.

    >>> normal_address("2001:db8::17")
    '2001:db8::/64'
    >>> normal_address("::ffff:203.0.113.7")
    '203.0.113.7'
    """
    try:
        parsed = ip_address(address)
    except ValueError:
        return address  # a host's name, or empty
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    if ipv6_prefix == 128:
        return str(IPv6Address(int(parsed)))
    return str(IPv6Network((int(parsed), ipv6_prefix), strict=False))


def request_header(name: str) -> KeyFunc:
    """Make a key function that returns a header's value: ``request_header("X-API-Key")``.

    A request in which the header is absent or empty has no key (None), and the limit does not
    apply to it: put a limit by address beside it.

    :raises ConfigError: if the name is not a header's name.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
        raise ConfigError(f"{name!r} is not a header's name. Expected one such as 'X-API-Key'.")

    def header() -> str | None:
        return request.headers.get(name) or None

    header.__name__ = header.__qualname__ = f"request_header({name!r})"
    return header
