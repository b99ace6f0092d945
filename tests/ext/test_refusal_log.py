"""Each refusal is one record of the log, whatever its client writes."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from flask import Flask

from flask_bucket import Limiter, MemoryStore
from tests.ext.conftest import answer, statuses


@pytest.fixture(autouse=True)
def _at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "flask_bucket")


def refuse(key: str, **settings: Any) -> None:
    """Let a client of this name be refused once."""
    app = Flask("logging")
    app.config.update(settings)
    limiter = Limiter(app, key_func=lambda: key, redis=MemoryStore())
    app.add_url_rule("/", "search", limiter.limit("1/minute")(answer()))
    assert statuses(app.test_client(), "/", 2) == [200, 429]


def test_a_refusal_is_one_record_with_limit_endpoint_and_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refuse("alice")
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("flask_bucket", "INFO")
    assert record.getMessage() == (
        "Refused by 1/minute at search: bucket:{alice}:search:per-minute"
    )


def test_a_record_is_formatted_only_when_it_is_read(caplog: pytest.LogCaptureFixture) -> None:
    refuse("alice")
    assert "%s" in caplog.records[0].msg


@pytest.mark.parametrize(
    "key", ["a\nRefused by nobody", "\x1b[31mred", "a\r\nb", "\u2028", "{}", "%s %d", "\udc80"]
)
def test_a_key_cannot_forge_a_line(caplog: pytest.LogCaptureFixture, key: str) -> None:
    refuse(key)
    (record,) = caplog.records
    assert record.getMessage().isascii()
    assert record.getMessage().isprintable()


def test_a_key_of_a_megabyte_is_cut_to_a_digest(caplog: pytest.LogCaptureFixture) -> None:
    refuse("k" * 1_000_000)
    assert len(caplog.records[0].getMessage()) < 400


def test_a_client_is_digested_where_keys_are(caplog: pytest.LogCaptureFixture) -> None:
    refuse("alice@example.com", BUCKET_KEY_SECRET="s3cret")
    assert "alice" not in caplog.text
    assert "bucket:{#" in caplog.text


def test_at_other_levels_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "flask_bucket")
    refuse("alice")
    assert not caplog.records
