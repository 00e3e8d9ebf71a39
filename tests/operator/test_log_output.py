"""Log lines."""

from __future__ import annotations

import json
import logging
import sys

from bayplan.log_output import JsonFormatter


def test_json_lines() -> None:
    """A record is one line of JSON with its level, its message and its exception."""
    try:
        int("bad")
    except ValueError:
        record = logging.LogRecord("bayplan.x", logging.WARNING, __file__, 1, "pod %s", ("p",), sys.exc_info())
    line = JsonFormatter().format(record)
    assert "\n" not in line
    document = json.loads(line)
    assert (document["level"], document["logger"], document["message"]) == ("warning", "bayplan.x", "pod p")
    assert "ValueError: invalid literal" in document["exception"]
