"""Fixtures of a browser for the session, and of a server of the page with a document of each panel for each test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hack.browser import Browser, MissingBrowser
from tests.page.documents import documents
from tests.page.firefox import FirefoxBrowser
from tests.page.page_server import PageServer
from tests.page.png_files import compressed

Serve = Callable[[dict[str, Any]], PageServer]


@pytest.fixture(scope="session")
def started_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Start the browser of the session, Chromium unless PAGE_BROWSER names Firefox; skip without it, except in CI."""
    chosen = {"chromium": Browser, "firefox": FirefoxBrowser}[os.environ.get("PAGE_BROWSER", "chromium")]
    try:
        browser = chosen(tmp_path_factory.mktemp("browser"))
    except MissingBrowser as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
    yield browser
    browser.close()


@pytest.fixture
def browser(started_browser: Browser) -> Iterator[Browser]:
    """Return the browser; the test fails if the console or the content security policy reports anything."""
    started_browser.new_messages()
    yield started_browser
    try:
        started_browser.leave()
    finally:
        started_browser.accepted = ()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that starts servers of documents; they end after the test."""
    with ExitStack() as stack:

        def started(found: dict[str, Any]) -> PageServer:
            server = PageServer(found)
            stack.callback(server.close)
            server.start()
            return server

        yield started


@pytest.fixture
def page(serve: Serve) -> PageServer:
    """Start a server of a small cluster of known content."""
    return serve(documents(nodes=200, pending=1_000, groups=15))


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the directory for screenshots: PAGE_SCREENSHOTS, where they are compressed, or a temporary one."""
    chosen = os.environ.get("PAGE_SCREENSHOTS")
    if not chosen:
        yield tmp_path_factory.mktemp("screenshots")
        return
    directory = Path(chosen).resolve()
    yield directory
    for file in directory.glob("*.png"):
        file.write_bytes(compressed(file.read_bytes()))
