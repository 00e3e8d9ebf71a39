"""Opens HTML files in headless Chromium, and returns what they contain, request and violate."""

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
_BY_THE_BROWSER = "not an origin"
_CONSOLE = re.compile(r':CONSOLE:\d+\] "(?P<message>.*?)", source: ', re.DOTALL)


@dataclass(frozen=True)
class OpenedFile:
    """What Chromium made of a file.

    Attributes:
        dom: The document after scripts ran, as HTML.
        console: Messages on the console; violations of the content security policy are among them.
        requests: URLs that the page requested, without the file itself.
    """

    dom: str
    console: list[str]
    requests: list[str]


def open_file(path: Path, scratch: Path) -> OpenedFile:
    """Open a file; skip the test without Chromium, except in CI.

    Args:
        path: The file.
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
        if each.get("initiator", _BY_THE_BROWSER) != _BY_THE_BROWSER and each.get("url") != path.as_uri()
    ]
    return OpenedFile(found.stdout, [each["message"] for each in _CONSOLE.finditer(found.stderr)], requests)
