"""Headless Chromium with its WebDriver; collects the messages of the console and of the content security policy."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from selenium.webdriver import Chrome, ChromeOptions, ChromeService, Firefox
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

WAIT_SECONDS = 30.0
DESKTOP: Final = (1440, 1000)
PHONE: Final = (360, 740)
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    # Pages are shown one after another in one process; Chromium would start one for each and a spare one.
    "--process-per-site",
    "--disable-site-isolation-trials",
    "--disable-features=SpareRendererForSitePerProcess",
    "--host-resolver-rules=MAP page.test 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
LISTEN = """
window.violations = [];
document.addEventListener('securitypolicyviolation', (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


class MissingBrowser(Exception):  # noqa: N818 - names the problem, as FileNotFoundError does
    """A browser or its driver is not installed."""


def program(name: str) -> str:
    """Return the path of a program.

    Raises:
        MissingBrowser: It is not on the PATH.
    """
    found = shutil.which(name)
    if found is None:
        raise MissingBrowser(f"no {name}; on Debian: apt-get install chromium chromium-driver, or firefox-esr")
    return found


class Browser:
    """A browser with one window.

    Attributes:
        accepted: Texts of console messages that are expected.
    """

    name = "chromium"
    driver: Chrome | Firefox

    def __init__(self, scratch: Path) -> None:
        options = ChromeOptions()
        options.binary_location = program("chromium")
        options.accept_insecure_certs = True
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        for flag in (*_FLAGS, f"--user-data-dir={scratch}"):
            options.add_argument(flag)
        self.accepted: tuple[str, ...] = ()
        self.chrome = Chrome(options=options, service=ChromeService(program("chromedriver")))
        self.driver = self.chrome
        self.command("Page.addScriptToEvaluateOnNewDocument", source=LISTEN)

    def open(self, url: str, size: tuple[int, int] = DESKTOP, *, dark: bool = False) -> None:
        """Open an address in a window of a size, in light or dark."""
        self.driver.get("about:blank")
        self.resize(size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.driver.get(url)

    @contextmanager
    def without_shared_workers(self) -> Iterator[None]:
        """Remove shared workers from pages that are opened meanwhile, so that each connects by itself."""
        script = self.command("Page.addScriptToEvaluateOnNewDocument", source="delete window.SharedWorker")
        try:
            yield
        finally:
            self.command("Page.removeScriptToEvaluateOnNewDocument", identifier=script["identifier"])

    def resize(self, size: tuple[int, int]) -> None:
        """Set the size of the page in CSS pixels."""
        self.command(
            "Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=False
        )

    def command(self, name: str, **parameters: Any) -> Any:
        """Run a command of the DevTools protocol."""
        return self.chrome.execute_cdp_cmd(name, parameters)

    def run(self, script: str, *args: Any) -> Any:
        """Run a function body in the page, and return its value."""
        return self.driver.execute_script(script, *args)

    def find(self, selector: str) -> WebElement:
        """Return the first element of a selector, and wait for it."""
        self.until(lambda: bool(self.all(selector)), f"{selector} exists")
        return self.all(selector)[0]

    def all(self, selector: str) -> list[WebElement]:
        """Return all elements of a selector."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """Return the text of an element as shown, with single spaces; "" if there is none."""
        found = self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)
        return " ".join(str(found).split())

    def shows(self, selector: str, text: str) -> None:
        """Wait until an element shows a text."""
        self.until(
            lambda: text in self.text(selector), lambda: f"{selector} shows {text!r}, not {self.text(selector)!r}"
        )

    def until(self, condition: Callable[[], bool], what: str | Callable[[], str]) -> None:
        """Wait until a condition holds."""
        try:
            WebDriverWait(self.driver, WAIT_SECONDS, 0.05).until(lambda _: condition())
        except Exception as error:
            # Of the wait, or of the condition, which may read an element that the page replaces.
            raise AssertionError(
                f"not within {WAIT_SECONDS:.0f} s: {what if isinstance(what, str) else what()}"
            ) from error

    def new_messages(self) -> list[str]:
        """Return the messages of the console and the policy since the last call, without accepted ones."""
        logged = self._logged()
        violations = self.run("const found = window.violations ?? []; window.violations = []; return found")
        return [each for each in (*logged, *violations) if not any(text in each for text in self.accepted)]

    def _logged(self) -> list[str]:
        return [entry["message"] for entry in self.chrome.get_log("browser")]  # type: ignore[no-untyped-call]

    def leave(self) -> None:
        """Leave the page before its server ends; fail if the console or the policy reported anything."""
        found = self.new_messages()
        self.driver.get("about:blank")
        self.new_messages()
        assert found == []

    def accept_status(self, *statuses: int) -> None:
        """Accept the console's messages about responses with a status, until the test ends."""
        self.accepted = tuple(f"responded with a status of {status}" for status in statuses)

    def screenshot(self, file: Path, selector: str = "", size: tuple[int, int] | None = None) -> None:
        """Write an element, or the whole page, as PNG; with a size, that part of it."""
        box = self.run(
            "const found = arguments[0] ? document.querySelector(arguments[0]) : document.documentElement;"
            "const box = found.getBoundingClientRect();"
            "return {x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height}",
            selector,
        )
        if size is not None:
            box["width"], box["height"] = size
        shot = self.command(
            "Page.captureScreenshot", format="png", captureBeyondViewport=True, clip={**box, "scale": 1}
        )
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        """End the browser and its driver."""
        self.driver.quit()
