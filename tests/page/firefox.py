"""Headless Firefox with its WebDriver; tests that need the DevTools protocol of Chromium are skipped in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Firefox, FirefoxOptions, FirefoxService

from hack.browser import DESKTOP, LISTEN, Browser, program
from hack.geckodriver import MissingGeckodriver, geckodriver

# 0 is dark and 1 is light.
_SCHEME = "layout.css.prefers-color-scheme.content-override"
_SET_SCHEME = "Services.prefs.setIntPref(arguments[0], arguments[1])"
_PREFERENCES: dict[str, Any] = {
    "network.dns.localDomains": "page.test",
    # Only loopback is reached: a proxy that refuses all connections is used for everything else.
    "network.proxy.type": 1,
    "network.proxy.http": "127.0.0.1",
    "network.proxy.http_port": 9,
    "network.proxy.ssl": "127.0.0.1",
    "network.proxy.ssl_port": 9,
    "network.proxy.no_proxies_on": "127.0.0.1,localhost,page.test",
    "ui.prefersReducedMotion": 1,
    # They take no width, as in Chromium with --hide-scrollbars.
    "ui.useOverlayScrollbars": 1,
}


class FirefoxBrowser(Browser):
    """A browser with one window.

    Args:
        scratch: Directory for the log of its driver.
    """

    name = "firefox"

    def __init__(self, scratch: Path) -> None:
        options = FirefoxOptions()
        options.binary_location = program("firefox-esr")
        options.accept_insecure_certs = True
        options.enable_bidi = True
        options.add_argument("-headless")
        for preference, value in _PREFERENCES.items():
            options.set_preference(preference, value)
        try:
            driver = str(geckodriver())
        except MissingGeckodriver as problem:
            pytest.fail(str(problem), pytrace=False)
        service = FirefoxService(
            driver, log_output=str(scratch / "geckodriver.log"), service_args=["--allow-system-access"]
        )
        self.accepted: tuple[str, ...] = ()
        self._messages: list[str] = []
        self.firefox = Firefox(options=options, service=service)
        self.driver = self.firefox
        self.driver.script.add_console_message_handler(self._collect)
        self.driver.script.add_javascript_error_handler(self._collect)
        self.driver.script.pin(f"() => {{ {LISTEN} }}")

    def _collect(self, entry: Any) -> None:
        if entry.level in {"warn", "error"}:
            self._messages.append(str(entry.text))

    def open(self, url: str, size: tuple[int, int] = DESKTOP, *, dark: bool = False) -> None:
        """Open an address in a window of a size, in light or dark."""
        self.driver.get("about:blank")
        self.resize(size)
        with self.firefox.context("chrome"):
            self.run(_SET_SCHEME, _SCHEME, 0 if dark else 1)
        self.driver.get(url)

    @contextmanager
    def without_shared_workers(self) -> Iterator[None]:
        """Remove shared workers from pages that are opened meanwhile, so that each connects by itself."""
        script = self.driver.script.pin("() => { delete window.SharedWorker }")
        try:
            yield
        finally:
            self.driver.script.unpin(script)  # type: ignore[no-untyped-call]

    def resize(self, size: tuple[int, int]) -> None:
        """Set the size of the page in CSS pixels."""
        self.driver.browsing_context.set_viewport(
            context=self.driver.current_window_handle, viewport={"width": size[0], "height": size[1]}
        )

    def command(self, name: str, **parameters: Any) -> Any:
        """Skip the test, which needs Chromium's protocol."""
        pytest.skip(f"Firefox has no {name}")

    def screenshot(self, file: Path, selector: str = "", size: tuple[int, int] | None = None) -> None:
        """Write an element, or the whole page, as PNG."""
        file.parent.mkdir(parents=True, exist_ok=True)
        if selector:
            file.write_bytes(self.find(selector).screenshot_as_png)
        else:
            file.write_bytes(self.firefox.get_full_page_screenshot_as_png())

    def _logged(self) -> list[str]:
        found, self._messages = self._messages, []
        return found
