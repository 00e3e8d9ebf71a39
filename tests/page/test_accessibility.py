"""Checks of axe-core for WCAG 2.2 AA, and use of the page by keyboard."""

from __future__ import annotations

from importlib import resources

import pytest
from selenium.webdriver.common.keys import Keys

from hack.browser import DESKTOP, PHONE, Browser
from tests.page.conftest import Serve
from tests.page.documents import documents, known
from tests.page.page_server import PageServer
from tests.page.test_screenshots import complete

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@pytest.fixture
def page(serve: Serve) -> PageServer:
    """Start a server of a small cluster of known content, in which no panel is hidden."""
    return serve({**documents(nodes=200, pending=1_000, groups=15), "plans": known("plans")})


def violations(browser: Browser, selector: str = "html") -> list[str]:
    """Return the violations that axe-core finds in the page or in an element of it."""
    # The header of the window may cover a target in part.
    browser.run("dispatchEvent(new Event('wheel')); scrollTo(0, 0)")
    browser.run((resources.files("selenium_axe_python") / "axe-core" / "axe.min.js").read_text(encoding="utf-8"))
    options = {"runOnly": {"type": "tag", "values": RULES}, "resultTypes": ["violations"]}
    found = browser.run("return axe.run(...arguments)", selector, options)
    return [
        f"{each['id']}: {node['target']} {node.get('failureSummary', '')}"
        for each in found["violations"]
        for node in each["nodes"]
    ]


@pytest.mark.parametrize(
    ("size", "dark"), [(DESKTOP, False), (DESKTOP, True), (PHONE, False)], ids=["light", "dark", "phone"]
)
@pytest.mark.parametrize("path", ["pod/batch/render-0", "gang/ml/train"])
def test_axe_finds_nothing(browser: Browser, page: PageServer, size: tuple[int, int], *, dark: bool, path: str) -> None:
    """The page has no violations; a gang is checked alone where the pod's case has checked the other panels."""
    browser.open(f"{page.url}#/work/{path}", size, dark=dark)
    if path.startswith("pod"):
        complete(browser)
    else:
        browser.shows("#work", "Reserved for other gangs")
    is_checked_with_pod = path.startswith("gang") and (dark or size == PHONE)
    assert violations(browser, "#work" if is_checked_with_pod else "html") == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("status", [401, 403, 503])
def test_axe_finds_nothing_without_data(browser: Browser, page: PageServer, status: int, *, dark: bool) -> None:
    """The login, denied access and a standby have no violations."""
    browser.accept_status(status)
    page.refusal = (
        status,
        {"error": "no", "standby": status == 503, "lease": "ns/name", "holder": "pod-1_x", "url": ""},
    )
    browser.open(page.url, dark=dark)
    browser.shows("main", "no")
    assert violations(browser) == []


def test_the_page_by_keyboard(browser: Browser, page: PageServer) -> None:
    """Tab reaches the parts of the page in order, each with a visible focus, and Enter follows a link."""
    browser.open(page.url)
    complete_without_work(browser)
    focused = []
    for _ in range(14):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        focused.append(browser.run("return document.activeElement.innerText.split('\\n')[0]"))
        assert browser.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid", focused
    assert focused[0] == "Theme: auto"
    assert [each.split()[0] for each in focused[1:9]] == [
        "Pending",
        "One",
        "Gangs",
        "Reservations",
        "Nodes",
        "Profiles",
        "Plans",
        "Rates",
    ]
    link = browser.all(".top nav a")[7]
    link.send_keys(Keys.ENTER)
    browser.until(lambda: browser.run("return document.activeElement.id") == "rates-title", "the heading has the focus")


def complete_without_work(browser: Browser) -> None:
    """Wait until the panels have content."""
    browser.shows("#rates", "lost binds")
    browser.shows("#nodes", "Fragmentation")
