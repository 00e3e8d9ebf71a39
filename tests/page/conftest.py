"""A browser for all tests of a process, and a server of the page with a document of each panel for each test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.page.browser import Browser
from tests.page.documents import documents
from tests.page.page_server import PageServer
from tests.page.png_files import compressed

Serve = Callable[[dict[str, Any]], PageServer]


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The browser of the session."""
    browser = Browser(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """The browser; the test fails if the console or the content security policy reports anything."""
    chromium.complaints()
    yield chromium
    try:
        chromium.leave()
    finally:
        chromium.accepted = ()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts servers of documents, and ends them after the test."""
    with ExitStack() as stack:

        def started(found: dict[str, Any]) -> PageServer:
            server = PageServer(found)
            stack.callback(server.close)
            server.start()
            return server

        yield started


@pytest.fixture
def page(serve: Serve) -> PageServer:
    """A server of a small cluster of known content."""
    return serve(documents(nodes=200, pending=1_000, groups=15))


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Directory for screenshots: that of the variable PAGE_SCREENSHOTS, made small, or a temporary one."""
    chosen = os.environ.get("PAGE_SCREENSHOTS")
    if not chosen:
        yield tmp_path_factory.mktemp("screenshots")
        return
    directory = Path(chosen).resolve()
    yield directory
    for file in directory.glob("*.png"):
        file.write_bytes(compressed(file.read_bytes()))
