"""Opens HTML files in headless Chromium and returns the document, console messages and requested URLs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--enable-logging=stderr",
    "--dump-dom",
)
_BROWSER_INITIATOR = "not an origin"
_CONSOLE = re.compile(r':CONSOLE:\d+\] "(?P<message>.*?)", source: ', re.DOTALL)


@dataclass(frozen=True)
class OpenedFile:
    """Result of opening a file.

    Attributes:
        dom: Document after the scripts ran, as HTML.
        console: Console messages, including violations of the content security policy.
        requests: URLs that the page requested, except the file itself.
    """

    dom: str
    console: list[str]
    requests: list[str]


def open_file(path: Path, scratch: Path) -> OpenedFile:
    """Open a file; without Chromium, skip the test, or fail it in CI.

    Args:
        path: HTML file.
        scratch: Directory for the browser's profile and log.
    """
    program = shutil.which("chromium")
    if program is None:
        message = "no chromium; on Debian: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    log = scratch / "net.json"
    command = [program, *_FLAGS, f"--user-data-dir={scratch / 'profile'}", f"--log-net-log={log}", path.as_uri()]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    events = [each.get("params", {}) for each in json.loads(log.read_text(encoding="utf-8"))["events"]]
    requests = [
        each["url"]
        for each in events
        if each.get("initiator", _BROWSER_INITIATOR) != _BROWSER_INITIATOR and each.get("url") != path.as_uri()
    ]
    return OpenedFile(found.stdout, [each["message"] for each in _CONSOLE.finditer(found.stderr)], requests)
