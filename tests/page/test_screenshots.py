"""Screenshots of every panel in light, in dark and at the width of a phone; the documentation shows them."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from hack.browser import DESKTOP, PHONE, Browser
from tests.page.conftest import Serve
from tests.page.documents import documents, known

PANELS = ("pending", "work", "gangs", "reservations", "nodes", "profiles", "plans", "rates", "watches")
LINK = "#/work/pod/batch/render-0"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_panel(browser: Browser, serve: Serve, screenshots: Path, theme: str) -> None:
    """Every panel has its content and is no wider than the page."""
    page = serve({**documents(groups=5), "plans": known("plans")})
    browser.open(page.url + LINK, DESKTOP, dark=theme == "dark")
    complete(browser)
    browser.screenshot(screenshots / f"page-{theme}.png", size=DESKTOP)
    browser.run("location.hash = '#/nodes?room=cpu%3D4%2Cmemory%3D8Gi'")
    browser.shows("#nodes .aside", "such pods have room")
    browser.find("#nodes .map").send_keys(Keys.HOME, *[Keys.ARROW_RIGHT] * 3)
    browser.shows("#nodes .aside", "rack rack-00;")
    browser.run("document.activeElement.blur(); scrollTo(0, 0)")
    for panel in PANELS:
        browser.screenshot(screenshots / f"{panel}-{theme}.png", f"#{panel}")


def test_a_phone(browser: Browser, serve: Serve, screenshots: Path) -> None:
    """The page is no wider than 360 px, except for elements that scroll."""
    page = serve({**documents(), "plans": known("plans")})
    browser.open(page.url + LINK, PHONE)
    complete(browser)
    assert browser.run("return document.documentElement.scrollWidth") == PHONE[0]
    browser.screenshot(screenshots / "phone.png", size=(PHONE[0], 3 * PHONE[1]))


def complete(browser: Browser) -> None:
    """Wait until all panels have content."""
    browser.shows("#rates", "lost binds")
    browser.shows("#nodes", "Fragmentation")
    browser.shows("#work", "Scores by plugin")
    browser.shows("#plans", "2 RebalancePlans")
    browser.until(lambda: not browser.all('[aria-busy="true"]'), "no panel is busy")
    # The test scrolls, so that the page no longer keeps the panel of the permalink in view.
    browser.run("dispatchEvent(new Event('wheel')); scrollTo(0, 0)")
