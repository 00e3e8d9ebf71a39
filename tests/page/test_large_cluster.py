"""Bounds for the elements of the page with 5,000 nodes and 10,000 pending pods."""

from __future__ import annotations

import random

from selenium.webdriver.common.keys import Keys

from hack.browser import Browser
from tests.page.conftest import Serve
from tests.page.documents import documents, pending_work

NODES, PENDING = 5_000, 10_000
STEPS = 10
_OBSERVE = """window.added = 0;
    new MutationObserver((list) => { for (const each of list) added += each.addedNodes.length; })
        .observe(document.body, {childList: true, subtree: true});"""


def test_changes_of_a_large_cluster(browser: Browser, serve: Serve) -> None:
    """When 500 nodes and all pending work change, elements are updated instead of replaced, and the keyboard works."""
    random_ = random.Random(5)
    page = serve(documents(NODES, PENDING))
    browser.open(page.url)
    browser.shows("#nodes", "5,000 nodes")
    browser.run(_OBSERVE)
    box = browser.find("#nodes .map")
    for step in range(STEPS):
        nodes = [
            [node, step, [random_.randrange(1001) for _ in range(3)]] for node in random_.sample(range(NODES), 500)
        ]
        page.push("nodesDelta", {"version": 1, "since": 1, "nodes": nodes})
        page.push("pending", pending_work(PENDING - step, 50))
        page.push("rates", page.documents["rates"])
        box.send_keys(Keys.ARROW_DOWN)
        browser.shows("#pending", f"{PENDING - step:,} pods")
    elements = browser.run("return document.querySelectorAll('*').length")
    assert browser.run("return added") < elements / 2


def test_the_number_of_elements_is_bounded(browser: Browser, serve: Serve) -> None:
    """5,000 nodes need no more elements than 50, because nodes are pixels of a canvas and long lists are cut."""
    counts = []
    for nodes, pending in ((50, 100), (NODES, PENDING)):
        page = serve(documents(nodes, pending))
        browser.open(page.url)
        browser.shows("#rates", "lost binds")
        browser.shows("#nodes", "Fragmentation")
        counts.append(browser.run("return document.querySelectorAll('*').length"))
    assert counts[1] < 1.1 * counts[0]
