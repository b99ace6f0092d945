"""Where bans are written, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask

from flask_bucket import ConfigError, Limiter, MemoryStore
from tests.conftest import START
from tests.ext.bans.conftest import shop
from tests.ext.conftest import CountingStore, statuses


def test_the_setting_wins_over_the_constructor(app: Flask, buckets: CountingStore) -> None:
    app.config["BUCKET_BANS"] = ["1/hour for 1 minute"]
    client = shop(app, buckets, "9/hour for 1 day")
    statuses(client, "/", 2)
    assert client.get("/other").headers["Retry-After"] == "60"


def test_a_setting_that_is_no_ban_is_refused(app: Flask) -> None:
    app.config["BUCKET_BANS"] = "20/hour"
    with pytest.raises(ConfigError, match="BUCKET_BANS"):
        Limiter(app)


def test_bans_that_are_none_are_refused_where_they_are_written() -> None:
    with pytest.raises(ConfigError, match="is not a ban"):
        Limiter(bans="20/hour")


@pytest.mark.parametrize("bans", [(), "9/hour for 1 day"])
def test_a_request_is_one_call_with_and_without_bans(
    app: Flask, buckets: CountingStore, bans: Any
) -> None:
    client = shop(app, buckets, bans)
    statuses(client, "/other", 5)
    assert buckets.calls == ["take"] * 5


def test_a_memory_store_needs_no_cache(app: Flask) -> None:
    client = shop(app, MemoryStore(lambda: START), "1/hour for 1 day")
    assert statuses(client, "/", 3) == [200, 429, 429]
