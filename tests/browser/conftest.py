"""One Chromium and one example for all tests of the page."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from tests.example_app.served import HARDLY_ANY, Example, served
from tests.servers import missing

if TYPE_CHECKING:
    from selenium.webdriver.chrome.webdriver import WebDriver

    from .page import Page


@pytest.fixture(scope="session")
def driver() -> Iterator[WebDriver]:
    if find_spec("selenium") is None:
        missing("selenium")
    from .page import browser, chromium

    if chromium() is None:
        missing("chromium")
    with browser() as driver:
        yield driver


@pytest.fixture
def page(driver: WebDriver) -> Iterator[Page]:
    """The page, not yet open. At the end, the browser's log must be empty."""
    from .page import Page

    page = Page(driver)
    yield page
    log = page.log
    driver.get("about:blank")  # ends streams
    assert log == []


@pytest.fixture(scope="session")
def slow_example(driver: WebDriver) -> Iterator[Example]:
    """The example, with a refill so slow that no token comes back during a test."""
    with served(
        WEB_CONCURRENCY="2", EXAMPLE_REFILL_RATE=HARDLY_ANY, FLASK_BUCKET_REFUSAL_CACHE="0"
    ) as example:
        yield example


@pytest.fixture(scope="session")
def fast_example(driver: WebDriver) -> Iterator[Example]:
    """The example, with a refill that fills an empty bucket in two and a half seconds."""
    with served(
        WEB_CONCURRENCY="2", EXAMPLE_REFILL_RATE="4", FLASK_BUCKET_REFUSAL_CACHE="0"
    ) as example:
        yield example


@pytest.fixture
def slow_page(page: Page, slow_example: Example) -> Page:
    """The page, with full buckets that are not refilled."""
    return with_full_buckets(page, slow_example)


@pytest.fixture
def fast_page(page: Page, fast_example: Example) -> Page:
    """The page, with full buckets that are refilled fast."""
    return with_full_buckets(page, fast_example)


def with_full_buckets(page: Page, example: Example) -> Page:
    """Empty the store. The refusal cache is off, or it would hide that for a second."""
    with example.valkey() as valkey:
        valkey.flushall()
    page.open(example.port)
    return page
