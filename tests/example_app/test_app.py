"""The example app alone, with a clock that the test moves."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import pytest
from flask.testing import FlaskClient

from example_app import create_app
from example_app.settings import Settings
from flask_bucket import ConfigError
from tests.conftest import START
from tests.example_app.served import clean_environment


class Clock:
    """The time of the in-process store, in microseconds."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now

    def advance(self, *, ms: int) -> None:
        self.now += ms * 1000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("flask_bucket.stores.memory._monotonic_clock", lambda: clock)
    return clock


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Callable[..., FlaskClient]:
    """Make the app with environment variables, and return a client for it."""
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    # The refusal cache has another clock, which the test does not move.
    monkeypatch.setenv("FLASK_BUCKET_REFUSAL_CACHE", "0")

    def configured(**variables: str) -> FlaskClient:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return create_app().test_client()

    return configured


@pytest.fixture
def client(configure: Callable[..., FlaskClient]) -> FlaskClient:
    return configure()


def test_ten_requests_pass_and_the_eleventh_waits_half_a_second(
    client: FlaskClient, clock: Clock
) -> None:
    responses = [client.get("/test") for _ in range(10)]
    assert [r.status_code for r in responses] == [200] * 10
    assert [r.headers["X-RateLimit-Remaining"] for r in responses] == [*"9876543210"]
    assert {r.headers["X-RateLimit-Limit"] for r in responses} == {"10"}

    refused = client.get("/test")
    assert refused.status_code == 429
    assert refused.json == {"error": "Too Many Requests", "retryAfterMs": 500}
    assert refused.headers["Retry-After"] == "1"

    clock.advance(ms=499)
    assert client.get("/test").json == {"error": "Too Many Requests", "retryAfterMs": 1}
    clock.advance(ms=1)
    assert client.get("/test").status_code == 200


def test_two_tokens_a_second_come_back(client: FlaskClient, clock: Clock) -> None:
    drain(client, "/test", 10)
    clock.advance(ms=2000)
    drain(client, "/test", 4)


def test_the_limit_of_test_is_set_by_the_environment(
    configure: Callable[..., FlaskClient], clock: Clock
) -> None:
    client = configure(EXAMPLE_CAPACITY="3", EXAMPLE_REFILL_RATE="5/3600")
    drain(client, "/test", 3)
    refused = client.get("/test")
    assert refused.json == {"error": "Too Many Requests", "retryAfterMs": 720_000}
    clock.advance(ms=720_000)
    drain(client, "/test", 1)


def test_search_allows_a_burst_and_then_five_a_second(client: FlaskClient, clock: Clock) -> None:
    drain(client, "/search?q=bucket", 20)
    clock.advance(ms=1000)
    drain(client, "/search?q=bucket", 5)


def test_two_reports_empty_a_bucket_of_ten(client: FlaskClient, clock: Clock) -> None:
    drain(client, "/report", 2)
    clock.advance(ms=4999)
    assert client.get("/report").status_code == 429
    clock.advance(ms=1)
    drain(client, "/report", 1)


def test_only_wrong_passwords_count(client: FlaskClient) -> None:
    right, wrong = ({"name": "demo", "password": password} for password in ("demo", "guess"))
    for _ in range(20):
        assert client.post("/login", data=right).status_code == 200
    for _ in range(5):
        assert client.post("/login", data=wrong).status_code == 401
    assert client.post("/login", data=wrong).status_code == 429
    assert client.post("/login", data=right).status_code == 429


@pytest.mark.parametrize("data", [{}, {"name": "demo"}, {"name": "démo", "password": "\udc80"}])
def test_a_strange_login_is_a_wrong_one(client: FlaskClient, data: dict[str, str]) -> None:
    body = "&".join(f"{name}={value}" for name, value in data.items())
    response = client.post(
        "/login",
        data=body.encode("utf-8", "surrogateescape"),
        content_type="application/x-www-form-urlencoded",
    )
    assert response.status_code == 401


def test_health_checks_are_free_of_limits_for_all(configure: Callable[..., FlaskClient]) -> None:
    client = configure(
        FLASK_BUCKET_DEFAULT_LIMITS="1/hour", FLASK_BUCKET_APPLICATION_LIMITS="2/hour"
    )
    for _ in range(5):
        response = client.get("/healthz")
        assert response.status_code == 200
        assert "X-RateLimit-Limit" not in response.headers
    drain(client, "/search", 2)


def test_without_proxies_the_header_is_ignored(configure: Callable[..., FlaskClient]) -> None:
    client = configure(EXAMPLE_CAPACITY="2")
    statuses = [status_for(client, f"192.0.2.{n}") for n in range(3)]
    assert statuses == [200, 200, 429]


def test_behind_a_proxy_clients_are_told_apart(configure: Callable[..., FlaskClient]) -> None:
    client = configure(EXAMPLE_CAPACITY="1", EXAMPLE_TRUSTED_PROXIES="1")
    assert status_for(client, "192.0.2.1") == 200
    assert status_for(client, "192.0.2.1") == 429
    assert status_for(client, "192.0.2.2") == 200


def test_what_a_client_puts_before_the_proxys_address_is_not_believed(
    configure: Callable[..., FlaskClient],
) -> None:
    client = configure(EXAMPLE_CAPACITY="1", EXAMPLE_TRUSTED_PROXIES="1")
    assert status_for(client, "198.51.100.1, 192.0.2.1") == 200
    assert status_for(client, "198.51.100.2, 192.0.2.1") == 429


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("EXAMPLE_TRUSTED_PROXIES", "two"),
        ("EXAMPLE_TRUSTED_PROXIES", "-1"),
        ("EXAMPLE_TRUSTED_PROXIES", "1.5"),
        ("EXAMPLE_TRUSTED_PROXIES", "²"),
        ("EXAMPLE_CAPACITY", "0"),
        ("EXAMPLE_CAPACITY", "ten"),
        ("EXAMPLE_CAPACITY", "2.5"),
        ("EXAMPLE_REFILL_RATE", "0"),
        ("EXAMPLE_REFILL_RATE", "-2"),
        ("EXAMPLE_REFILL_RATE", "nan"),
        ("EXAMPLE_REFILL_RATE", "1/0"),
    ],
)
def test_a_bad_setting_is_named_with_its_value(variable: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{variable}={re.escape(value)}"):
        Settings.from_environment({variable: value})


def test_an_empty_setting_is_the_default() -> None:
    empty = {
        "EXAMPLE_CAPACITY": "",
        "EXAMPLE_REFILL_RATE": "",
        "EXAMPLE_TRUSTED_PROXIES": "",
    }
    assert Settings.from_environment(empty) == Settings.from_environment({})


def drain(client: FlaskClient, path: str, requests: int) -> None:
    """Send this number of requests, which must be allowed, and one that must be refused."""
    assert [client.get(path).status_code for _ in range(requests)] == [200] * requests
    assert client.get(path).status_code == 429


def status_for(client: FlaskClient, forwarded_for: str) -> int:
    return client.get("/test", headers={"X-Forwarded-For": forwarded_for}).status_code
