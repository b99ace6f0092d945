"""Networks: exempt some, and limit whole ones."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from flask_bucket import ConfigError, Limiter, client_network, networks
from tests.ext.conftest import CountingStore, answer, statuses


def at(address: str) -> dict[str, Any]:
    return {"environ_overrides": {"REMOTE_ADDR": address}}


@pytest.fixture(params=["exempt_when", "request_filter"])
def limited(
    request: pytest.FixtureRequest, app: Flask, limiter: Limiter, client: FlaskClient
) -> FlaskClient:
    """A client of a view whose limit of one leaves two networks and an address out."""
    internal = networks("10.0.0.0/8", "2001:db8::/32", "203.0.113.7")
    if request.param == "exempt_when":
        limit = limiter.limit("1/minute", exempt_when=internal)
    else:
        limit = limiter.limit("1/minute")
        limiter.request_filter(internal)
    app.get("/")(limit(answer()))
    return client


@pytest.mark.parametrize(
    "address",
    [
        *("10.1.2.3", "10.1.2.3:5000", "::ffff:10.1.2.3", "203.0.113.7"),
        *("2001:db8:7::1", "[2001:db8::1]:443"),
    ],
)
def test_a_client_inside_is_free(limited: FlaskClient, address: str) -> None:
    assert statuses(limited, "/", 3, **at(address)) == [200, 200, 200]


@pytest.mark.parametrize("address", ["11.1.2.3", "203.0.113.8", "2001:db9::1", "localhost", ""])
def test_a_client_outside_or_without_an_address_is_limited(
    limited: FlaskClient, address: str
) -> None:
    assert statuses(limited, "/", 2, **at(address)) == [200, 429]


@pytest.mark.parametrize(
    ("network", "inside", "outside"),
    [
        ("::ffff:10.0.0.0/104", "10.255.0.1", "11.0.0.1"),
        ("::ffff:10.0.0.0/104", "::ffff:10.1.2.3", "::ffff:11.1.2.3"),
        ("64:ff9b::10.1.0.0/112", "10.1.2.3", "10.2.2.3"),
        ("::ffff:203.0.113.7", "203.0.113.7", "203.0.113.8"),
        ("::ffff:0.0.0.0/96", "203.0.113.7", "2001:db8::1"),
        ("::/0", "2001:db8::1", "::ffff:203.0.113.7"),
    ],
)
def test_an_ipv4_network_that_is_written_as_ipv6_is_the_ipv4_network(
    app: Flask, network: str, inside: str, outside: str
) -> None:
    condition = networks(network)
    for address, expected in ((inside, True), (outside, False)):
        with app.test_request_context("/", **at(address)):
            assert condition() is expected


@pytest.mark.parametrize("text", ["10.0.0.1/8", "often", "10.0.0.0/33", "", 5, None, b"10.0.0.0/8"])
def test_a_wrong_network_is_an_error_where_it_is_written(text: Any) -> None:
    with pytest.raises(ConfigError, match="is not a network"):
        networks("10.0.0.0/8", text)


def test_no_network_is_an_error() -> None:
    with pytest.raises(ConfigError, match="at least one"):
        networks()


def test_a_network_has_one_bucket_beside_those_of_its_addresses(
    app: Flask, limiter: Limiter, buckets: CountingStore
) -> None:
    by_network = limiter.limit("3/minute", key_func=client_network())
    app.get("/")(by_network(limiter.limit("2/minute")(answer())))
    client = app.test_client()
    assert [statuses(client, "/", 1, **at(f"203.0.113.{n}"))[0] for n in range(5)] == (
        [200] * 3 + [429] * 2
    )
    assert statuses(client, "/", 1, **at("203.0.114.1")) == [200]
    assert "bucket:{203.0.113.0%2F24}:view:per-minute-2" in buckets.keys


@pytest.mark.parametrize(
    ("address", "other", "same"),
    [
        ("2001:db8:1::1", "2001:db8:1:2::1", True),
        ("2001:db8:1::1", "2001:db8:2::1", False),
        ("203.0.113.1", "203.0.113.200", True),
        ("localhost", "localhost", True),
    ],
)
def test_addresses_of_one_network_are_one_client(
    app: Flask, limiter: Limiter, client: FlaskClient, address: str, other: str, same: bool
) -> None:
    app.get("/")(limiter.limit("1/minute", key_func=client_network())(answer()))
    client.get("/", **at(address))
    assert statuses(client, "/", 1, **at(other)) == [429 if same else 200]


@pytest.mark.parametrize("bits", [{"v4": 0}, {"v4": 33}, {"v6": 129}, {"v4": "24"}, {"v6": True}])
def test_wrong_bits_are_an_error_where_they_are_written(bits: Any) -> None:
    with pytest.raises(ConfigError, match="number of bits"):
        client_network(**bits)
