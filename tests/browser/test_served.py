"""The page's server, without a browser."""

from __future__ import annotations

import os

import pytest
from flask.testing import FlaskClient

from example_app import create_app
from tests.example_app.served import clean_environment


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FlaskClient:
    """The example with buckets of two, and with limits on everything that is not exempt."""
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    monkeypatch.setenv("FLASK_BUCKET_APPLICATION_LIMITS", "1/hour")
    monkeypatch.setenv("FLASK_BUCKET_DEFAULT_LIMITS", "1/hour")
    monkeypatch.setenv("EXAMPLE_CAPACITY", "2")
    monkeypatch.setenv("EXAMPLE_REFILL_RATE", "1/3600")
    return create_app().test_client()


@pytest.fixture
def unlimited_client(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> FlaskClient:
    """The example with only the views' own limits."""
    monkeypatch.delenv("FLASK_BUCKET_APPLICATION_LIMITS")
    return create_app().test_client()


@pytest.mark.parametrize("path", ["/", "/static/page.js", "/static/page.css"])
def test_the_page_and_its_files_are_not_limited(client: FlaskClient, path: str) -> None:
    for _ in range(3):
        with client.get(path) as response:
            assert response.status_code == 200
            assert "X-RateLimit-Limit" not in response.headers


def test_the_page_tells_the_limit_and_the_endpoint(client: FlaskClient) -> None:
    page = client.get("/").text
    assert 'data-capacity="2"' in page
    assert f'data-rate="{1 / 3600}"' in page
    assert 'data-endpoint="/test"' in page


def test_the_page_runs_under_a_strict_content_security_policy(client: FlaskClient) -> None:
    page = client.get("/").text
    assert "default-src 'self'" in page
    assert "unsafe" not in page
    assert "//" not in page.removeprefix("<!doctype html>")  # nothing from other hosts


def test_the_header_makes_two_clients_and_the_address_another(
    unlimited_client: FlaskClient,
) -> None:
    assert statuses(unlimited_client, 3, "a") == [200, 200, 429]
    assert statuses(unlimited_client, 3, "b") == [200, 200, 429]
    assert statuses(unlimited_client, 3) == [200, 200, 429]


def test_an_invented_name_is_no_further_client(unlimited_client: FlaskClient) -> None:
    assert statuses(unlimited_client, 3) == [200, 200, 429]
    assert statuses(unlimited_client, 1, "c") == [429]
    assert statuses(unlimited_client, 1, "") == [429]


def statuses(client: FlaskClient, requests: int, name: str | None = None) -> list[int]:
    headers = {} if name is None else {"X-Demo-Client": name}
    return [client.get("/test", headers=headers).status_code for _ in range(requests)]
