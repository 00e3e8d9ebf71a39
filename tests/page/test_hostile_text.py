"""Text from the cluster is shown as text: markup, control characters and right-to-left characters have no effect."""

from __future__ import annotations

from urllib.parse import quote

from hack.browser import PHONE, Browser
from tests.page.conftest import Serve
from tests.page.documents import HOSTILE, SHOWN, documents, with_hostile_text
from tests.page.page_server import POLICY, PageServer

RIGHT_TO_LEFT = "\u05e9\u05dc\u05d5\u05dd"
PANELS = ("pending", "work", "gangs", "nodes", "profiles", "rates")


def hostile(nodes: int = 40) -> dict[str, object]:
    """Return documents in which every name is hostile."""
    found: dict[str, object] = {}
    for path, document in documents(nodes=nodes, pending=100, groups=5).items():
        found[path] = with_hostile_text(document)
    # Columns of the map are found by resource name, so both must have the hostile name.
    plain = documents(nodes=nodes)["nodes"]
    renamed = {resource["name"]: f"{resource['name']} {HOSTILE}" for resource in plain["resources"]}
    assert isinstance(found["nodes"], dict)
    found["nodes"]["used"] = {renamed[name]: levels for name, levels in plain["used"].items()}
    return found


def test_hostile_names_are_text(browser: Browser, serve: Serve) -> None:
    """A hostile name creates no element or request and does not change the title; every panel shows it escaped."""
    page = serve(hostile())
    browser.open(page.url + "#/work/pod/batch/render-0")
    browser.shows("#work", "Scores by plugin")
    browser.until(lambda: not browser.all('[aria-busy="true"]'), "no panel is busy")
    for panel in PANELS:
        assert SHOWN in browser.run("return document.getElementById(arguments[0]).textContent", panel), panel
    assert browser.all("#page img, #page script, #page iframe") == []
    assert browser.driver.title == "Bayplan"
    text = browser.run("return document.documentElement.outerHTML")
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert {each for each in page.requests if not each.startswith("/page/")} == set()


def test_hostile_names_do_not_widen_the_page(browser: Browser, serve: Serve) -> None:
    """On a phone, long names break or scroll in their table."""
    page = serve(hostile())
    browser.open(page.url + "#/work/pod/batch/render-0", PHONE)
    browser.shows("#work", "Scores by plugin")
    browser.until(lambda: not browser.all('[aria-busy="true"]'), "no panel is busy")
    assert browser.run("return document.documentElement.scrollWidth") == PHONE[0]


def test_a_hostile_name_in_the_address(browser: Browser, page: PageServer) -> None:
    """A link from elsewhere cannot inject markup or leave the page's data."""
    browser.accept_status(404)
    browser.open(f"{page.url}#/work/pod/{quote(HOSTILE, safe='')}/..%2F..%2Fx?api={quote(HOSTILE, safe='')}")
    browser.shows("#work", "Not explained")
    assert browser.all("#page img, #page script") == []
    assert [
        each for each in page.requests if not each.startswith(("/page/assets/", "/page/data/work?", "/page/events?"))
    ] == ["/page/"]


def test_a_right_to_left_name_is_isolated(browser: Browser, page: PageServer) -> None:
    """A right-to-left name does not reorder the text beside it."""
    page.documents["gangs"]["gangs"][0]["gang"] = f"ml/{RIGHT_TO_LEFT}"
    browser.open(page.url)
    browser.shows("#gangs", RIGHT_TO_LEFT)
    isolated = (
        "return [...document.querySelectorAll('#gangs bdi')].some((each) => each.textContent.includes(arguments[0]))"
    )
    assert browser.run(isolated, RIGHT_TO_LEFT)


def test_a_violation_is_detected(browser: Browser, page: PageServer) -> None:
    """The policy blocks and reports markup that is inserted unescaped, so the tests above would fail on it."""
    browser.open(page.url)
    browser.shows("#pending", "1,000 pods")
    browser.run("document.body.insertAdjacentHTML('beforeend', arguments[0])", HOSTILE)
    browser.until(lambda: bool(browser.run("return violations.length")), "a violation is reported")
    assert any("127.0.0.1:9" in each for each in browser.new_messages())
    assert "script-src 'self'" in POLICY
