"""Who the client is, and keys that cannot collide, be injected or grow."""

from __future__ import annotations

import re
from string import ascii_lowercase, digits
from typing import Any

import pytest
from flask import Flask, request
from flask.testing import FlaskClient
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from werkzeug.middleware.proxy_fix import ProxyFix

from flask_bucket import ConfigError, Limiter, client_address, request_header
from flask_bucket.keys import Spelling, ending, shortened, spelled
from flask_bucket.limits import NAME
from tests.ext.conftest import CountingStore, answer, statuses


@pytest.fixture
def limited(app: Flask, limiter: Limiter, client: FlaskClient) -> FlaskClient:
    """A client of an application whose only view allows one request a minute."""
    app.add_url_rule("/", "v", limiter.limit("1/minute")(answer()))
    return client


def at(address: str | None) -> dict[str, Any]:
    return {"environ_overrides": {"REMOTE_ADDR": address}}


# Addresses.


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


# Other keys.


def test_a_header_makes_a_key(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    view = limiter.limit("1/minute", key_func=request_header("X-API-Key"))(answer())
    app.add_url_rule("/", "v", view)
    assert statuses(client, "/", 2, headers={"x-api-key": "a"}) == [200, 429]
    assert statuses(client, "/", 2, headers={"X-API-Key": "b"}) == [200, 429]


def test_an_absent_header_is_no_key(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    view = limiter.limit("1/minute", key_func=request_header("X-API-Key"))(answer())
    app.add_url_rule("/", "v", view)
    assert statuses(client, "/", 3) == [200] * 3
    assert statuses(client, "/", 3, headers={"X-API-Key": ""}) == [200] * 3


@pytest.mark.parametrize("name", ["", "X API Key", "X-Key:", "X-\nKey", None, 7, b"X-API-Key"])
def test_a_headers_name_is_checked(name: Any) -> None:
    with pytest.raises(ConfigError, match="X-API-Key"):
        request_header(name)


def test_no_key_skips_that_limit_alone(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    @app.get("/")
    @limiter.limit("1/minute", key_func=lambda: request.args.get("user"))
    @limiter.limit("3/minute")
    def view() -> str:
        return "fine"

    assert statuses(client, "/", 2) == [200, 200]
    assert statuses(client, "/?user=a", 2) == [200, 429]


def test_the_limiters_key_function_serves_every_level(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(
        app,
        redis=buckets,
        key_func=lambda: "u",
        default_limits=["9/minute"],
        application_limits=["9/minute"],
    )
    app.add_url_rule("/v", "v", limiter.limit("9/minute", override_defaults=False)(answer()))
    app.test_client().get("/v")
    assert [key.split(":")[1] for key in buckets.keys] == ["{u}"] * 3


def test_limiters_of_different_names_share_no_bucket(app: Flask, buckets: CountingStore) -> None:
    Limiter(app, redis=buckets, default_limits=["9/minute"])
    Limiter(app, redis=buckets, default_limits=["9/minute"], name="api")
    app.add_url_rule("/", "v", answer())
    app.test_client().get("/")
    assert buckets.keys == [
        "bucket:{127.0.0.1}:v@default:per-minute",
        "bucket/api:{127.0.0.1}:v@default:per-minute",
    ]


def test_the_prefix_can_be_set(app: Flask, buckets: CountingStore) -> None:
    app.config["BUCKET_KEY_PREFIX"] = "shop:eu"
    Limiter(app, redis=buckets, default_limits=["9/minute"])
    app.add_url_rule("/", "v", answer())
    app.test_client().get("/")
    assert buckets.keys == ["shop:eu:{127.0.0.1}:v@default:per-minute"]


# With a secret.


def test_a_secret_keeps_clients_out_of_every_key(app: Flask, buckets: CountingStore) -> None:
    app.config["BUCKET_KEY_SECRET"] = "s3cret" * 20
    limiter = Limiter(
        app,
        redis=buckets,
        key_func=lambda: request.args["user"],
        default_limits=["9/minute"],
        application_limits=["9/minute"],
    )
    app.add_url_rule("/", "v", limiter.limit("9/minute", override_defaults=False)(answer()))
    client = app.test_client()
    client.get("/?user=alice")
    with app.app_context():
        limiter.consume("9/minute", "alice")
        assert limiter.reset("alice") == 4
    clients = {key.split(":")[1] for key in buckets.keys}
    assert len(clients) == 1
    assert re.fullmatch(r"\{#[0-9a-f]{32}\}", clients.pop())
    client.get("/?user=bob")
    assert len({key.split(":")[1] for key in buckets.keys}) == 2
    assert not any("alice" in key or "bob" in key for key in buckets.keys)


def test_another_secret_gives_other_keys() -> None:
    keys = {Spelling("b", secret).start("alice") for secret in (None, "a", "b", "b" * 65)}
    assert len(keys) == 4


def test_every_character_of_a_long_secret_counts() -> None:
    secrets = ("s" * 64, "s" * 64 + "a", "s" * 64 + "b", "s" * 200)
    assert len({Spelling("b", secret).start("alice") for secret in secrets}) == 4


# Spelling. The strategies lean to what could be mistaken for the key's own marks.

MARKS = st.sampled_from(["", ":", "{", "}", "%", "@", "#", "/", " ", "\n", "\x00", "\ud800", "a"])
WORDS = ["v", "v@default", "%40", "manual", "}:v:per-minute", "#", "#" + "0" * 32, "\ud800", "é"]
PARTS = st.one_of(
    st.text(st.characters(), max_size=120),
    st.lists(MARKS, max_size=6).map("".join),
    st.sampled_from(WORDS),
)
NAMES = st.builds(
    "{}{}".format,
    st.sampled_from(ascii_lowercase),
    st.text(ascii_lowercase + digits + "_.-", max_size=148),
).filter(NAME.fullmatch)
TRIPLES = st.tuples(PARTS, PARTS, NAMES)


def spell(client: str, scope: str, name: str) -> str:
    return Spelling("bucket").start(client) + ending(spelled(scope), name)


@given(TRIPLES, TRIPLES)
@settings(max_examples=300, deadline=None)
def test_no_two_triples_share_a_key(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assume(one != other)
    assert spell(*one) != spell(*other)


@given(PARTS, PARTS, NAMES)
@settings(max_examples=300, deadline=None)
def test_a_key_has_one_pair_of_braces_and_no_odd_character(
    client: str, scope: str, name: str
) -> None:
    key = spell(client, scope, name)
    assert re.fullmatch(r"bucket:\{[\w.~%#-]{1,100}\}:[\w.~%#-]{1,100}:[\w.~%#-]{1,100}", key, re.A)


@pytest.mark.parametrize("part", ["x" * 101, "é" * 17, "\ud800" * 12])
def test_a_long_part_is_a_digest(part: str) -> None:
    assert re.fullmatch("#[0-9a-f]{32}", spelled(part))
    assert spelled(part) != spelled(part + "x")


def test_a_part_of_100_bytes_is_still_readable() -> None:
    assert spelled("x" * 100) == "x" * 100


@pytest.mark.parametrize(
    "key", ["a}:v:per-minute", "{b}", "%7B", "a\nb", "@", "#", "\ud800", "x" * 500, "a:b c"]
)
def test_clients_choose_no_bucket_but_their_own(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore, key: str
) -> None:
    view = limiter.limit("1/minute", key_func=lambda: key)(answer())
    app.add_url_rule("/", "v", view)
    assert statuses(client, "/", 2) == [200, 429]
    assert re.fullmatch(r"bucket:\{[\w.~%#-]{1,100}\}:v:per-minute", buckets.keys[0], re.A)


def test_a_long_endpoint_and_name_do_not_grow_the_key(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    view = limiter.limit("1/minute", name="n" * 500, per_method=True)(answer())
    app.add_url_rule("/", "e" * 500, view)
    assert statuses(client, "/", 2) == [200, 429]
    assert max(map(len, buckets.keys)) < 150


@pytest.mark.parametrize("length", [92, 93, 98, 100, 101, 300])
@pytest.mark.parametrize("rule", ["1/day", lambda: "1/day"])
def test_a_scope_never_exceeds_100_bytes_with_its_marks(
    app: Flask, buckets: CountingStore, length: int, rule: Any
) -> None:
    Limiter(app, redis=buckets, default_limits=[rule])
    for last in "ab":
        app.add_url_rule(f"/{last}", "e" * (length - 1) + last, answer())
    for last in "ab":
        assert statuses(app.test_client(), f"/{last}", 2) == [200, 429]
    scopes = [key.split(":")[2] for key in buckets.keys]
    assert max(map(len, scopes)) <= 100
    assert all("@default" in scope for scope in scopes)


def test_a_scope_of_many_long_parts_is_one_digest() -> None:
    scopes = [f"{'e' * 99}@{'f' * 98}{last}@callable@{'9' * 33}@dry-run" for last in "ab"]
    one, other = map(shortened, scopes)
    assert len(one) == len(other) == 33
    assert one != other


def test_a_shortened_endpoint_meets_none_that_is_written_as_it_is_spelled() -> None:
    endpoint = "a:" + "b" * 95
    written = spelled(endpoint)
    assert (len(written), len(spelled(written))) == (99, 33), "only the second is a digest already"
    assert shortened(f"{written}@default") != shortened(f"{spelled(written)}@default")
