"""How log lines look.

Owns the root logger's handler and levels. It must not know who logs.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from bayplan.log_flood import FloodFilter
from bayplan.settings import LogFormat, LogLevel

_TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record as JSON.

        Args:
            record: What is logged.

        Returns:
            The line without its end.
        """
        document = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document, ensure_ascii=False)


def set_up_logging(level: LogLevel, output: LogFormat) -> None:
    """Send all logging to standard error.

    Args:
        level: Least severity; kopf's own messages are shown from warning on, or all of them with debug. Floods of like
            warnings are summed up, except with debug.
        output: Text or JSON.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if output == "json" else logging.Formatter(_TEXT))
    if level != "debug":
        handler.addFilter(FloodFilter(handler))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("kopf", "aiohttp"):
        logging.getLogger(name).setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
