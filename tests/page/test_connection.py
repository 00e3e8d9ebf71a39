"""The page without data: login, standby, lost connection, too many viewers."""

from __future__ import annotations

from typing import Any

from selenium.webdriver.common.keys import Keys

from hack.browser import Browser
from tests.page.documents import pending_work
from tests.page.page_server import PageServer
from tests.support.tables import table

STANDBY = {
    "error": "this replica is a standby",
    "standby": True,
    "lease": "bayplan/bayplan",
    "holder": "bayplan-7d9f-x2_0a1b",
    "url": "https://10.0.0.7:10260",
    "localPort": 10259,
}


def test_the_page_reconnects(browser: Browser, page: PageServer) -> None:
    """After a lost connection the panels stay, a banner counts down, and the next stream brings new documents."""
    browser.accept_status(502)
    browser.open(page.url)
    browser.shows("#pending", "1,000 pods")
    page.refusal = (502, {})
    page.drop()
    browser.shows(".banner", "Connection lost")
    browser.shows(".banner", "Next attempt in")
    assert "The panels show the state of" in browser.text(".banner")
    assert "not connected" in browser.text(".connection")
    assert "1,000 pods" in browser.text("#pending")
    page.refusal = None
    page.documents["pending"] = pending_work(5, 1)
    browser.shows(".connection", "live")
    browser.shows("#pending", "5 pods in 1 group")
    assert not browser.all(".banner")


def test_connect_now(browser: Browser, page: PageServer) -> None:
    """The button connects at once instead of after the backoff."""
    with browser.without_shared_workers():
        browser.open(page.url)
    browser.shows(".connection", "live")
    browser.run(
        "Math.random = () => 0; window.timeout = setTimeout; setTimeout = (call, ms) => timeout(call, ms * 100)"
    )
    page.drop()
    browser.find(".banner button").click()
    browser.shows(".connection", "live")


def test_the_backoff_grows(browser: Browser, page: PageServer) -> None:
    """The delay between attempts grows up to 30 s, with jitter."""
    browser.accept_status(500)
    with browser.without_shared_workers():
        browser.open(page.url)
    browser.shows(".connection", "live")
    # By way of window, because Firefox runs the body of a function with other globals than those of the page.
    browser.run("""window.waits = []; const timeout = window.setTimeout.bind(window);
        window.setTimeout = (call, ms) => {
          if (ms < 40000) window.waits.push(ms);
          return timeout(call, ms < 40000 ? 1 : ms);
        }""")
    page.refusal = (500, {"error": "no"})
    page.drop()
    browser.until(lambda: browser.run("return window.waits.length") > 12, "many attempts")
    page.refusal = None
    browser.shows(".connection", "live")
    waits = browser.run("return window.waits")
    for at, wait in enumerate(waits):
        longest = min(30_000, 1_000 * 2**at)
        assert longest / 2 <= wait <= longest, waits


def test_login(browser: Browser, page: PageServer) -> None:
    """After 401 a form requests the token, which is sent in both headers and stored nowhere."""
    browser.accept_status(401)
    page.token = "secret-token"
    browser.open(page.url)
    browser.shows(".login", "Log in")
    assert not browser.all("#pending")
    browser.find("#token").send_keys("wrong", Keys.ENTER)
    browser.shows(".login", "This token is not accepted.")
    browser.find("#token").send_keys("secret-token", Keys.ENTER)
    browser.shows("#pending", "1,000 pods")
    assert not browser.all(".login")
    browser.run("location.hash = '#/work/pod/batch/render-0'")
    browser.shows("#work", "has no feasible node")
    assert browser.run("return [document.cookie, JSON.stringify(localStorage) + JSON.stringify(sessionStorage)]") == [
        "",
        "{}{}",
    ]
    assert "secret-token" not in browser.run("return document.documentElement.outerHTML")
    assert not [each for each in page.requests if "token" in each]


FOLLOW_LEADER = "kubectl -n bayplan port-forward pod/bayplan-7d9f-x2 {port}:10259"
NOT_READY = {"error": "not ready", "notReady": ["nodes are listed"]}
VIEWERS = {"error": "10 viewers follow this page", "viewers": 10}


@table(
    "status, body, texts",
    ("forbidden", 403, {"error": "a may not list pods"}, ["Access denied", "a may not list pods", "Log in"]),
    ("standby", 503, STANDBY, ["This replica is a standby", "bayplan-7d9f-x2_0a1b", FOLLOW_LEADER]),
    ("standby-without-leader", 503, {**STANDBY, "holder": "", "url": ""}, ["No replica leads now"]),
    ("not-ready", 503, NOT_READY, ["The operator is not ready", "nodes are listed"]),
    ("viewers", 503, VIEWERS, ["Too many viewers", "10 viewers follow this page"]),
)
def test_refusals(browser: Browser, page: PageServer, status: int, body: dict[str, Any], texts: list[str]) -> None:
    """The banner names the reason and the remedy, and the page connects when the reason is gone."""
    browser.accept_status(status)
    page.refusal = (status, body)
    browser.open(page.url)
    for text in texts:
        browser.shows("main", text.format(port=page.url.split(":")[2].split("/")[0]))
    page.refusal = None
    browser.shows("#pending", "1,000 pods")


def test_a_leader_change(browser: Browser, page: PageServer) -> None:
    """A replica that loses the Lease ends its streams; the banner then names the new leader."""
    browser.accept_status(503)
    browser.open(page.url)
    browser.shows(".connection", "live")
    page.refusal = (503, STANDBY)
    page.drop()
    browser.shows(".banner.standby", "Leader: bayplan-7d9f-x2_0a1b")
    assert "1,000 pods" in browser.text("#pending")


def test_the_stream_ends_with_the_page(browser: Browser, page: PageServer) -> None:
    """A closed page ends its stream, so that another viewer can connect."""
    browser.open(page.url)
    browser.shows(".connection", "live")
    browser.driver.get("about:blank")
    browser.until(lambda: page.streams == 0, "no stream is open")


def test_all_tabs_share_one_connection(browser: Browser, page: PageServer) -> None:
    """Eight tabs read one stream, each sends requests and shows changes; the stream ends with the last tab."""
    browser.open(page.url)
    first, tabs = browser.driver.current_window_handle, []
    try:
        for _ in range(7):
            browser.driver.switch_to.new_window("tab")
            tabs.append(browser.driver.current_window_handle)
            browser.driver.get(page.url)
            browser.shows(".connection", "live")
            browser.shows("#pending", "1,000 pods")
        assert page.streams == 1
        browser.find('#nodes input[name="room"]').send_keys("cpu=4,memory=8Gi", Keys.ENTER)
        browser.shows("#nodes .aside", "58 such pods have room")
        page.push("pending", pending_work(12, 3))
        for tab in (tabs[0], first):
            browser.driver.switch_to.window(tab)
            browser.shows("#pending", "12 pods in 3 groups")
        page.drop()
        browser.shows(".banner", "Connection lost")
        browser.shows(".connection", "live")
        assert page.streams == 1
    finally:
        for tab in tabs:
            browser.driver.switch_to.window(tab)
            browser.driver.close()
        browser.driver.switch_to.window(first)
    assert page.streams == 1
    browser.driver.get("about:blank")
    browser.until(lambda: page.streams == 0, "no stream is open")


def test_pages_that_are_left_keep_no_connection(browser: Browser, page: PageServer) -> None:
    """Departures by a link and returns leave one stream, also without shared workers."""
    browser.accept_status(404)
    with browser.without_shared_workers():
        for _ in range(8):
            browser.driver.get(page.url)
            browser.shows(".connection", "live")
            browser.driver.get(page.url.replace("/page/", "/elsewhere"))
        browser.driver.back()
        browser.shows(".connection", "live")
        browser.until(lambda: page.streams == 1, "one stream is open")


def test_a_token_holds_for_all_tabs(browser: Browser, page: PageServer) -> None:
    """A login in one tab logs in the others, and another tab needs none."""
    browser.accept_status(401)
    page.token = "secret-token"
    browser.open(page.url)
    browser.find("#token").send_keys("secret-token", Keys.ENTER)
    browser.shows("#pending", "1,000 pods")
    first = browser.driver.current_window_handle
    browser.driver.switch_to.new_window("tab")
    try:
        browser.driver.get(page.url)
        browser.shows("#pending", "1,000 pods")
        assert not browser.all(".login")
    finally:
        browser.driver.close()
        browser.driver.switch_to.window(first)


def test_themes(browser: Browser, page: PageServer) -> None:
    """The switch overrides the system's theme, and the choice survives a reload."""
    background = "return getComputedStyle(document.body).backgroundColor"
    browser.open(page.url, dark=True)
    browser.shows(".top", "Theme: auto")
    dark = browser.run(background)
    button = browser.find(".top button")
    button.click()
    browser.shows(".top", "Theme: light")
    assert browser.run(background) != dark
    browser.driver.refresh()
    browser.shows(".top", "Theme: light")
    assert browser.run(background) != dark
    browser.run("localStorage.clear()")
