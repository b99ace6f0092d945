"""The address of a client."""

from __future__ import annotations

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.middleware.proxy_fix import ProxyFix

from flask_bucket import Limiter, client_address
from tests.ext.conftest import CountingStore, answer, statuses
from tests.ext.keys.conftest import at


def test_each_address_is_a_client(limited: FlaskClient, buckets: CountingStore) -> None:
    assert statuses(limited, "/", 2, **at("203.0.113.7")) == [200, 429]
    assert statuses(limited, "/", 2, **at("203.0.113.8")) == [200, 429]
    assert buckets.keys[0] == "bucket:{203.0.113.7}:v:per-minute"


def test_an_ipv4_address_mapped_into_ipv6_is_unwrapped(limited: FlaskClient) -> None:
    assert statuses(limited, "/", 1, **at("203.0.113.7")) == [200]
    assert statuses(limited, "/", 1, **at("::ffff:203.0.113.7")) == [429]
    assert statuses(limited, "/", 1, **at("::FFFF:cb00:7107")) == [429]
    assert statuses(limited, "/", 1, **at("::ffff:203.0.113.8")) == [200]


def test_an_ipv6_network_of_64_bits_is_one_client(
    limited: FlaskClient, buckets: CountingStore
) -> None:
    assert statuses(limited, "/", 1, **at("2001:db8::1")) == [200]
    assert statuses(limited, "/", 1, **at("2001:DB8:0:0:ffff::1")) == [429]
    assert statuses(limited, "/", 1, **at("2001:db8:0:1::1")) == [200]
    assert buckets.keys[0] == "bucket:{2001%3Adb8%3A%3A%2F64}:v:per-minute"


@pytest.mark.parametrize(("prefix", "same"), [(48, True), (64, False), (128, False)])
def test_the_ipv6_prefix_can_be_set(buckets: CountingStore, prefix: int, same: bool) -> None:
    app = Flask("prefixed")
    app.config["BUCKET_IPV6_PREFIX"] = prefix
    Limiter(app, redis=buckets, default_limits=["1/minute"])
    app.get("/")(answer())
    client = app.test_client()
    client.get("/", **at("2001:db8:0:1::1"))
    assert statuses(client, "/", 1, **at("2001:db8:0:2::1")) == [429 if same else 200]


def test_a_prefix_of_128_bits_is_the_address_itself(app: Flask) -> None:
    app.config["BUCKET_IPV6_PREFIX"] = 128
    with app.test_request_context(environ_overrides={"REMOTE_ADDR": "2001:DB8::0:1%eth0"}):
        assert client_address() == "2001:db8::1"


def test_x_forwarded_for_is_never_read(limited: FlaskClient) -> None:
    forwarded = [{"X-Forwarded-For": f"203.0.113.{n}"} for n in (1, 2)]
    assert [limited.get("/", headers=h).status_code for h in forwarded] == [200, 429]


@pytest.mark.parametrize("fixed", [False, True])
def test_x_forwarded_for_is_warned_of_only_without_proxy_fix(
    app: Flask, limited: FlaskClient, caplog: pytest.LogCaptureFixture, fixed: bool
) -> None:
    if fixed:
        app.wsgi_app = ProxyFix(app.wsgi_app)  # type: ignore[method-assign]  # as its docs say
    for _ in range(2):
        limited.get("/", headers={"X-Forwarded-For": "203.0.113.7"})
    warnings = [r for r in caplog.records if "X-Forwarded-For" in r.getMessage()]
    assert len(warnings) == (0 if fixed else 1)


def test_proxy_fix_tells_who_the_client_is(app: Flask, limited: FlaskClient) -> None:
    app.wsgi_app = ProxyFix(app.wsgi_app, x_for=1)  # type: ignore[method-assign]  # as its docs say
    forwarded = [{"X-Forwarded-For": f"10.0.0.9, 203.0.113.{n}"} for n in (1, 2, 1)]
    assert [limited.get("/", headers=h).status_code for h in forwarded] == [200, 200, 429]


@pytest.mark.parametrize(
    "address", ["203.0.113.7:50001", "[::ffff:203.0.113.7]:443", "64:ff9b::203.0.113.7"]
)
def test_an_ipv4_address_is_one_client_however_it_comes(
    limited: FlaskClient, buckets: CountingStore, address: str
) -> None:
    assert statuses(limited, "/", 1, **at("203.0.113.7")) == [200]
    assert statuses(limited, "/", 1, **at(address)) == [429]
    assert statuses(limited, "/", 1, **at(address.replace("0.113.7", "0.113.8"))) == [200]


@pytest.mark.parametrize("address", ["[2001:db8::7]:443", "[2001:db8::7]", "2001:db8::7%eth0"])
def test_an_ipv6_address_is_one_client_whatever_its_port(
    limited: FlaskClient, address: str
) -> None:
    assert statuses(limited, "/", 1, **at("2001:db8::8")) == [200]
    assert statuses(limited, "/", 1, **at(address)) == [429]


def test_a_port_behind_proxy_fix_makes_no_client_of_its_own(
    app: Flask, limited: FlaskClient
) -> None:
    app.wsgi_app = ProxyFix(app.wsgi_app, x_for=1)  # type: ignore[method-assign]  # as its docs say
    forwarded = [{"X-Forwarded-For": f"203.0.113.7:{port}"} for port in (50001, 50002)]
    assert [limited.get("/", headers=h).status_code for h in forwarded] == [200, 429]


@pytest.mark.parametrize("address", ["", None, "localhost", "<local>", "unix:"])
def test_a_client_at_a_unix_socket_is_logged_once_with_what_to_do(
    limited: FlaskClient, caplog: pytest.LogCaptureFixture, address: str | None
) -> None:
    assert statuses(limited, "/", 3, **at(address)) == [200, 429, 429]
    (record,) = (r for r in caplog.records if r.levelname == "WARNING")
    assert "unix socket" in record.getMessage()
    assert "ProxyFix" in record.getMessage()


@pytest.mark.parametrize("address", ["203.0.113.010", "1.2.3", "unknown", "_hidden", "x" * 5000])
def test_a_client_whose_address_is_not_one_is_logged_once_and_as_no_unix_socket(
    limited: FlaskClient, caplog: pytest.LogCaptureFixture, address: str
) -> None:
    assert statuses(limited, "/", 3, **at(address)) == [200, 429, 429]
    (record,) = (r for r in caplog.records if r.levelname == "WARNING")
    assert "is not an IP address" in record.getMessage()
    assert "unix socket" not in record.getMessage()
    assert len(record.getMessage()) < 500


def test_a_bad_address_does_not_keep_the_unix_socket_from_being_logged(
    limited: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    for address in ("unknown", "", "unknown", ""):
        limited.get("/", **at(address))
    assert [r.levelname for r in caplog.records if r.levelname == "WARNING"] == ["WARNING"] * 2


def test_each_application_logs_a_client_without_an_address(
    buckets: CountingStore, caplog: pytest.LogCaptureFixture
) -> None:
    limiter = Limiter(redis=buckets, default_limits=["9/minute"])
    for name in ("one", "two"):
        app = Flask(name)
        limiter.init_app(app)
        app.get("/")(answer())
        app.test_client().get("/", **at(""))
    assert len(caplog.records) == 2


def test_a_client_with_a_name_for_an_address_is_that_name(
    limited: FlaskClient, buckets: CountingStore
) -> None:
    assert statuses(limited, "/", 2, **at("localhost")) == [200, 429]
    assert buckets.keys[0] == "bucket:{localhost}:v:per-minute"
