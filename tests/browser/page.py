"""The example's page in a browser, in the words of a person who looks at it."""

from __future__ import annotations

import base64
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.example_app.served import PATIENCE, eventually

OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium() -> tuple[str, str] | None:
    """Return the system's Chromium and its driver; None if either is missing."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    return (binary, driver) if binary and driver else None


@contextmanager
def browser() -> Iterator[WebDriver]:
    """Run Chromium with its own profile, which is removed afterwards."""
    found = chromium()
    assert found, "Chromium and chromedriver are needed."
    binary, driver = found
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as profile:
        for option in (*OPTIONS, f"--user-data-dir={profile}"):
            options.add_argument(option)
        running = webdriver.Chrome(options=options, service=Service(driver))
        try:
            running.set_page_load_timeout(PATIENCE)
            yield running
        finally:
            running.quit()


class Page:
    """The page, open."""

    def __init__(self, driver: WebDriver) -> None:
        self.driver = driver
        self.look()

    def open(self, port: int) -> None:
        self.driver.get(f"http://127.0.0.1:{port}/")
        eventually(lambda: self.text("#refill"))  # the script writes it last

    def look(
        self,
        *,
        width: int = 1120,
        height: int = 900,
        scale: float = 1,
        scheme: str = "light",
        motion: bool = True,
    ) -> None:
        """Set the size of the window in CSS pixels, and the user's preferences."""
        size = {"width": width, "height": height, "deviceScaleFactor": scale}
        self._tell("Emulation.setDeviceMetricsOverride", {**size, "mobile": width < 600})
        preferences = {
            "prefers-color-scheme": scheme,
            "prefers-reduced-motion": "no-preference" if motion else "reduce",
        }
        features = [{"name": name, "value": value} for name, value in preferences.items()]
        self._tell("Emulation.setEmulatedMedia", {"features": features})

    def picture(self, path: Path) -> None:
        """Save a picture of the whole page, not only of the window."""
        answer = self._tell("Page.captureScreenshot", {"captureBeyondViewport": True})
        path.write_bytes(base64.b64decode(answer["data"]))

    def _tell(self, command: str, parameters: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self.driver.execute_cdp_cmd(command, parameters)
        return answer

    # Actions

    def choose(self, client: str) -> None:
        self.find(f"label[for=client-{client}]").click()

    def press(self, button: str) -> None:
        self.find(f"#{button}").click()

    def type(self, key: str, *, shift: bool = False) -> None:
        """Press a key on the element that has the focus."""
        actions = ActionChains(self.driver)
        if shift:
            actions.key_down(Keys.SHIFT).send_keys(key).key_up(Keys.SHIFT)
        else:
            actions.send_keys(key)
        actions.perform()

    # What the page shows

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element("css selector", selector)

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0]).textContent", selector))

    def level(self, client: str) -> int | None:
        """The whole tokens that the client's bucket shows; None if it shows that it is unknown."""
        shown = self.text(f".choice[data-client={client}] .whole")
        return None if shown == "?" else int(shown)

    def fill(self, client: str) -> float:
        """How much of the client's vessel is filled: 0 to 1."""
        choice = f".choice[data-client={client}]"
        script = "return document.querySelector(arguments[0]).style.getPropertyValue('--filled')"
        return float(self.run(script, choice))

    def note(self, client: str) -> str:
        return self.text(f".choice[data-client={client}] .note")

    def counts(self, client: str) -> tuple[int, int]:
        """How many requests of the last minute were allowed, and how many refused."""
        lane = f".lane[data-client={client}]"
        return int(self.text(f"{lane} .allowed b")), int(self.text(f"{lane} .refused b"))

    @property
    def status(self) -> str:
        """The status line, which a screen reader reads aloud."""
        return self.text("#status")

    @property
    def trouble(self) -> str:
        """The trouble that the page shows."""
        return self.find("#trouble").text

    @property
    def headers(self) -> dict[str, str]:
        found: dict[str, str] = self.run("""
            return Object.fromEntries([...document.querySelectorAll("#headers dt")].map(
                (term) => [term.textContent, term.nextSibling.firstChild.textContent]))
        """)
        return found

    @property
    def is_streaming(self) -> bool:
        return self.text("#stream") == "Stop"

    @property
    def focus(self) -> str:
        """The id of the element that has the focus."""
        return str(self.run("return document.activeElement.id"))

    @property
    def log(self) -> list[dict[str, Any]]:
        """What the browser has logged since the last call."""
        entries: list[dict[str, Any]] = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return entries

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)
