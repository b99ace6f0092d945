"""Networks of clients: conditions for rules, and buckets for a whole network."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_network

from flask import request

from .clients import CARRIERS, LONGEST_CACHED, KeyFunc, address_of, client_address
from .errors import ConfigError


def networks(*texts: str) -> Callable[[], bool]:
    """Make a condition: whether the client's address is in one of these networks.

    For ``exempt_when`` and for ``request_filter``. A client without an address is in none.

    :param texts: such as ``"10.0.0.0/8"``, ``"2001:db8::/32"`` or a single address.
    :raises ConfigError: for a text that is not a network, where it is written.

    >>> from flask import Flask
    >>> app = Flask(__name__)
    >>> from flask_bucket import Limiter
    >>> limiter = Limiter(app, default_limits=["1/minute"])
    >>> internal = limiter.request_filter(networks("10.0.0.0/8", "::1"))
    >>> with app.test_request_context(environ_base={"REMOTE_ADDR": "10.1.2.3"}):
    ...     internal()
    True
    """
    if not texts:
        raise ConfigError("networks() needs at least one network, such as '10.0.0.0/8'.")
    known = tuple(map(_network, texts))

    @lru_cache(maxsize=10_000)
    def is_inside(text: str) -> bool:
        address = address_of(text)
        return address is not None and any(
            address.version == network.version and address in network for network in known
        )

    def in_networks() -> bool:
        text = request.remote_addr or ""
        return len(text) <= LONGEST_CACHED and is_inside(text)

    in_networks.__name__ = in_networks.__qualname__ = f"networks({', '.join(map(repr, texts))})"
    return in_networks


def client_network(v4: int = 24, v6: int = 48) -> KeyFunc:
    """Make a key function that returns the network of the client's address.

    An attacker who has a whole network has an address for each request. A limit by network, in
    addition to the limit by address, stops that.

    :param v4: leading bits of an IPv4 address that make a network.
    :param v6: leading bits of an IPv6 address that make a network.
    :raises ConfigError: for a number of bits that cannot be one.

    >>> from flask import Flask
    >>> with Flask(__name__).test_request_context(environ_base={"REMOTE_ADDR": "203.0.113.7"}):
    ...     client_network()()
    '203.0.113.0/24'
    """
    for name, bits, most in (("v4", v4, 32), ("v6", v6, 128)):
        if type(bits) is not int or not 1 <= bits <= most:
            raise ConfigError(f"{name} is a number of bits from 1 to {most}, not {bits!r}.")
    return _in_networks_of(v4, v6)


@lru_cache
def _in_networks_of(v4: int, v6: int) -> KeyFunc:
    """Return one and the same function for two numbers: a ban counts by the same key function."""

    @lru_cache(maxsize=10_000)
    def network_of(text: str) -> str | None:
        address = address_of(text)
        if address is None:
            return None
        if isinstance(address, IPv4Address):
            return str(IPv4Network((int(address), v4), strict=False))
        return str(IPv6Network((int(address), v6), strict=False))

    def network() -> str:
        text = request.remote_addr or ""
        found = network_of(text) if len(text) <= LONGEST_CACHED else None
        return client_address() if found is None else found  # which logs that there is no address

    network.__name__ = network.__qualname__ = f"client_network(v4={v4}, v6={v6})"
    return network


def _unwrapped(network: IPv4Network | IPv6Network) -> IPv4Network | IPv6Network:
    """Return the IPv4 network that an IPv6 one carries, since clients are unwrapped as well."""
    if isinstance(network, IPv6Network) and any(map(network.subnet_of, CARRIERS)):
        first = int(network.network_address) & 0xFFFFFFFF
        return IPv4Network((first, network.prefixlen - 96))
    return network


def _network(text: object) -> IPv4Network | IPv6Network:
    try:
        if isinstance(text, str):
            return _unwrapped(ip_network(text))
        reason = "it is not a text"
    except ValueError as error:
        reason = str(error)
    raise ConfigError(
        f"{text!r} is not a network: {reason}. Expected one such as '10.0.0.0/8', '2001:db8::/32' "
        "or a single address."
    )
