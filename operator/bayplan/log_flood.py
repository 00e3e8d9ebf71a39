"""Keeps a flood of like lines out of the log, and says how many it kept out.

Owns the count of lines by where in the code they are written. It must not know what they say. Why here and not where
the lines are written: in an outage each of a thousand pods has its own trouble, worth a line if it were alone.

    quiet --more than the most in a window--> flooded --window is over--> quiet, one line says how many were left out

The line that sums up comes with the next line of any kind after the window, so that no timer is needed.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

_MOST = 5
_WINDOW_SECONDS = 30.0


@dataclass(slots=True)
class _Source:
    """One place in the code that logs."""

    began: float
    let_through: int = 0
    left_out: int = 0
    sample: logging.LogRecord | None = None


class FloodFilter(logging.Filter):
    """Lets a few lines of each place through in a window of time; errors with a traceback always.

    Args:
        handler: Takes the line that sums up.
        most: Lines of one place in a window.
        window_seconds: How long a window lasts.
    """

    def __init__(self, handler: logging.Handler, most: int = _MOST, window_seconds: float = _WINDOW_SECONDS) -> None:
        super().__init__()
        self._handler = handler
        self._most = most
        self._window_seconds = window_seconds
        self._sources: dict[tuple[str, int], _Source] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written; those of windows that are over are summed up first.

        Args:
            record: A line. Those below WARNING always pass: they are few unless somebody asked for more.
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
        message = "%d more lines like the following were left out within %.0f s: %s"
        args = (source.left_out, now - source.began, sample.getMessage())
        summary = logging.LogRecord(sample.name, sample.levelno, sample.pathname, sample.lineno, message, args, None)
        self._handler.emit(summary)
