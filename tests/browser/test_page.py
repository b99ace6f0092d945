"""The example's page: what it shows is what the server decides."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.example_app.served import Example, eventually, served
from tests.servers import Server, free_port

if TYPE_CHECKING:
    from .page import Page

#: The keys of selenium.webdriver.common.keys, which may not be installed.
TAB, ENTER, SPACE, RIGHT = "\ue004", "\ue007", " ", "\ue014"
PHONE = 320

#: The lowest contrast of a text with its background by WCAG 2, and that text.
LOWEST_CONTRAST = """
const luminance = (rgb) => rgb
  .map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4))
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
const behind = (element) => {
  for (let e = element; e; e = e.parentElement) {
    const colour = channels(getComputedStyle(e).backgroundColor);
    if (colour.length === 3) return colour;
  }
  throw new Error("nothing is behind");
};
const hasText = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
const contrasts = [...document.querySelectorAll("body *")]
  .filter((e) => e.checkVisibility() && hasText(e))
  .map((e) => {
    const [a, b] = [channels(getComputedStyle(e).color).slice(0, 3), behind(e)].map(luminance);
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.textContent];
  });
return contrasts.sort(([a], [b]) => a - b)[0];
"""


def test_a_burst_of_fifteen_is_ten_allowed_and_five_refused(slow_page: Page) -> None:
    slow_page.press("burst")
    eventually(lambda: slow_page.status == "Client A: 10 allowed, 5 refused.")
    eventually(lambda: slow_page.counts("a") == (10, 5))
    eventually(lambda: slow_page.level("a") == 0)
    assert slow_page.note("a") == "a token in 12 days"


def test_a_level_is_unknown_until_the_first_answer(slow_page: Page, slow_example: Example) -> None:
    assert (slow_page.level("a"), slow_page.fill("a")) == (None, 0)
    slow_page.press("one")
    eventually(lambda: slow_page.level("a") == 9)

    slow_page.open(slow_example.port)  # a reload forgets what the page knew
    assert (slow_page.level("a"), slow_page.fill("a")) == (None, 0)
    assert slow_page.note("a") == "unknown until the first answer"
    slow_page.press("one")
    eventually(lambda: slow_page.level("a") == 8)


def test_the_status_line_follows_the_slider(fast_page: Page) -> None:
    # The stream may have a request on the way when the test ends. In the other example its token
    # would be missing in the next test.
    fast_page.run("document.querySelector('#rate').focus()")
    fast_page.type(RIGHT)
    assert fast_page.status == "A stream will send 5 a second."
    fast_page.press("stream")
    assert fast_page.status == "Client A sends 5 a second."


def test_the_second_client_is_unaffected(slow_page: Page) -> None:
    slow_page.press("burst")
    eventually(lambda: slow_page.counts("a") == (10, 5))

    slow_page.choose("b")
    assert slow_page.level("b") is None
    slow_page.press("one")
    eventually(lambda: slow_page.status == "Client B: allowed, 9 tokens left.")
    eventually(lambda: slow_page.level("b") == 9)
    assert slow_page.counts("b") == (1, 0)

    slow_page.choose("a")
    slow_page.press("one")
    eventually(lambda: slow_page.counts("a") == (10, 6))
    assert slow_page.level("a") == 0


def test_the_headers_of_the_last_answer_are_shown(slow_page: Page, slow_example: Example) -> None:
    slow_page.press("one")
    eventually(lambda: slow_page.text("#answer-status") == "200 OK")
    assert slow_page.headers["X-RateLimit-Remaining"] == "9"
    assert int(slow_page.headers["X-Served-By"]) in slow_example.workers(2)

    slow_page.press("burst")
    eventually(lambda: slow_page.status == "Client A: 9 allowed, 6 refused.")
    slow_page.press("one")
    eventually(lambda: slow_page.text("#answer-status") == "429 Too Many Requests")
    assert 999_900 < int(slow_page.headers["Retry-After"]) <= 1_000_000
    assert slow_page.trouble == ""


def test_a_bucket_that_others_drained_is_corrected(slow_page: Page, slow_example: Example) -> None:
    slow_page.press("one")
    eventually(lambda: slow_page.level("a") == 9)
    with slow_example.valkey() as valkey:
        (key,) = valkey.keys()
        scale = int(valkey.hget(key, "scale") or 0)
        valkey.hset(key, "tokens", 5 * scale)
    slow_page.press("one")
    eventually(lambda: slow_page.level("a") == 4)
    with slow_example.valkey() as valkey:
        valkey.flushall()
    slow_page.press("one")
    eventually(lambda: slow_page.level("a") == 9)


def test_answers_in_any_order_are_each_counted_once(slow_page: Page) -> None:
    slow_page.run("for (let i = 0; i < 8; i += 1) document.querySelector('#one').click()")
    eventually(lambda: slow_page.counts("a") == (8, 0))
    eventually(lambda: slow_page.level("a") == 2)


@pytest.mark.parametrize("motion", [True, False])
def test_the_level_refills_without_being_asked(fast_page: Page, motion: bool) -> None:
    fast_page.look(motion=motion)
    fast_page.press("burst")
    eventually(lambda: is_below(fast_page, 5))
    eventually(lambda: fast_page.level("a") == 10)
    assert fast_page.note("a") == "full"
    fast_page.press("one")
    eventually(lambda: fast_page.status == "Client A: allowed, 9 tokens left.")


def test_a_stream_starts_changes_its_rate_and_stops(fast_page: Page) -> None:
    fast_page.press("stream")
    assert fast_page.is_streaming
    assert fast_page.status == "Client A sends 4 a second."
    eventually(lambda: fast_page.counts("a") > (2, 0))

    fast_page.run("""
        const rate = document.querySelector("#rate");
        rate.value = 20;
        rate.dispatchEvent(new Event("input", { bubbles: true }));
    """)
    assert fast_page.text("#rate-text") == "20 a second"
    eventually(lambda: fast_page.counts("a")[1] > 5)
    assert fast_page.counts("b") == (0, 0)
    fast_page.choose("b")
    assert not fast_page.is_streaming  # the button is for the chosen client
    fast_page.choose("a")
    assert fast_page.is_streaming

    fast_page.press("stream")
    assert not fast_page.is_streaming
    assert fast_page.status.startswith("Client A has stopped: ")
    # The bucket fills only if no more tokens are taken.
    eventually(lambda: fast_page.note("a") == "full")


def test_the_keyboard_alone_can_do_everything(slow_page: Page) -> None:
    slow_page.type(TAB)
    expect_visible_focus(slow_page, "client-a")
    slow_page.type(RIGHT)
    expect_visible_focus(slow_page, "client-b")
    assert slow_page.status == "The buttons send as Client B."
    slow_page.type(TAB)
    expect_visible_focus(slow_page, "one")
    slow_page.type(ENTER)
    eventually(lambda: slow_page.counts("b") == (1, 0))
    slow_page.type(TAB)
    expect_visible_focus(slow_page, "burst")
    slow_page.type(SPACE)
    eventually(lambda: slow_page.status == "Client B: 9 allowed, 6 refused.")
    slow_page.type(TAB)
    expect_visible_focus(slow_page, "stream")
    slow_page.type(SPACE)
    assert slow_page.is_streaming
    slow_page.type(TAB)
    expect_visible_focus(slow_page, "rate")
    slow_page.type(RIGHT)
    assert slow_page.text("#rate-text") == "5 a second"
    assert slow_page.status == "Client B sends 5 a second."
    eventually(lambda: slow_page.counts("b")[1] > 6)
    slow_page.type(TAB, shift=True)
    expect_visible_focus(slow_page, "stream")
    slow_page.type(ENTER)
    assert not slow_page.is_streaming


def expect_visible_focus(page: Page, element: str) -> None:
    """Check that an element has the focus, and that it or its label has an outline."""
    assert page.focus == element
    assert (
        page.run("""
        const e = document.activeElement;
        const shown = e.type === "radio" ? e.labels[0] : e;
        return getComputedStyle(shown).outlineStyle;
    """)
        == "solid"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1120, PHONE])
def test_it_fits_and_can_be_read(slow_page: Page, scheme: str, width: int, tmp_path: Path) -> None:
    slow_page.press("burst")
    eventually(lambda: slow_page.counts("a") == (10, 5))
    slow_page.look(width=width, scheme=scheme)
    scrolled, shown = slow_page.run(
        "const page = document.documentElement; return [page.scrollWidth, page.clientWidth]"
    )
    assert scrolled == shown  # the page does not scroll sideways
    contrast, text = slow_page.run(LOWEST_CONTRAST)
    assert contrast >= 4.5, text

    picture = tmp_path / "page.png"
    slow_page.picture(picture)
    assert struct.unpack(">I", picture.read_bytes()[16:20]) == (shown,)


def test_an_outage_is_told_and_so_is_its_end(page: Page, own_server: Server) -> None:
    with served(
        WEB_CONCURRENCY="1",
        FLASK_BUCKET_REDIS_URL=own_server.url,
        FLASK_BUCKET_RECOVERY_INTERVAL="0.01",
    ) as example:
        page.open(example.port)
        own_server.kill()
        page.press("one")
        eventually(lambda: page.trouble == "no rate headers: the limiter is failing open")
        assert page.status == "Client A: no rate headers: the limiter is failing open."
        assert page.note("a") == "level unknown"

        own_server.start()
        eventually(lambda: answered_without_trouble(page))
        eventually(lambda: is_below(page, 10))


def test_a_server_that_was_away_is_found_again_with_what_it_has_become(page: Page) -> None:
    same = {
        # Without this, a stop would wait for the browser's connections.
        "GUNICORN_CMD_ARGS": f"--bind 127.0.0.1:{free_port()} --keep-alive 0",
        "WEB_CONCURRENCY": "1",
        "FLASK_BUCKET_REDIS_URL": "memory://",
    }
    with served(**same) as example:
        page.open(example.port)
        page.press("one")
        eventually(lambda: page.counts("a") == (1, 0))
    page.press("one")
    eventually(lambda: page.trouble == "no answer from the server")
    assert page.counts("a") == (1, 0)

    with served(**same, EXAMPLE_CAPACITY="5") as example:
        assert example.port
        eventually(lambda: answered_without_trouble(page))
        eventually(lambda: page.text(".choice[data-client=a] .capacity") == "5")


def is_below(page: Page, tokens: int) -> bool:
    level = page.level("a")
    return level is not None and level < tokens


def answered_without_trouble(page: Page) -> bool:
    """Send one more request; return whether there are rate headers."""
    page.press("one")
    return page.trouble == "" and "X-RateLimit-Limit" in page.headers
