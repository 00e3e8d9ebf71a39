"""Logging filter that suppresses floods of similar lines and logs how many it suppressed.

Lines are counted by their place in the code, because in an outage each of a thousand pods logs its own failure.

    quiet --limit of the window exceeded--> flooded --window over--> quiet, one line sums up the suppressed lines

The summary is written with the next line of any kind after the window, so that no timer is needed.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

_MOST = 5
_WINDOW_SECONDS = 30.0


@dataclass(slots=True)
class _Source:
    """Place in the code that logs."""

    began: float
    let_through: int = 0
    left_out: int = 0
    sample: logging.LogRecord | None = None


class FloodFilter(logging.Filter):
    """Filter that passes a few lines of each place per time window, and always errors with a traceback."""

    def __init__(self, handler: logging.Handler, most: int = _MOST, window_seconds: float = _WINDOW_SECONDS) -> None:
        super().__init__()
        self._handler = handler
        self._most = most
        self._window_seconds = window_seconds
        self._sources: dict[tuple[str, int], _Source] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write a line; first sum up the windows that are over.

        Args:
            record: A line. Lines below WARNING always pass: they are few unless debug logging is on.
        """
        now = record.created
        for place, source in [item for item in self._sources.items() if now - item[1].began >= self._window_seconds]:
            del self._sources[place]
            self._sum_up(source, now)
        if record.levelno < logging.WARNING or record.exc_info:
            return True
        source = self._sources.setdefault((record.pathname, record.lineno), _Source(now))
        if source.let_through < self._most:
            source.let_through += 1
            return True
        source.left_out += 1
        source.sample = record
        return False

    def _sum_up(self, source: _Source, now: float) -> None:
        sample = source.sample
        if sample is None:
            return
        message = "%d more lines like the following were suppressed within %.0f s: %s"
        args = (source.left_out, now - source.began, sample.getMessage())
        summary = logging.LogRecord(sample.name, sample.levelno, sample.pathname, sample.lineno, message, args, None)
        self._handler.emit(summary)
