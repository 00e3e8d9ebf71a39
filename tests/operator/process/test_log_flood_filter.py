"""Tests of the filter for floods of similar log lines."""

from __future__ import annotations

import logging
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from bayplan.process.log_output import FloodFilter


class Lines(logging.Handler):
    """Log handler that records the lines that pass a flood filter of two lines in ten seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []
        self.addFilter(FloodFilter(self, most=2, window_seconds=10.0))

    def emit(self, record: logging.LogRecord) -> None:
        self.written.append(record.getMessage())

    def log(self, at: float, message: str, line: int = 1, level: int = logging.WARNING, exc: bool = False) -> None:
        error = ValueError("bad")
        trace = (ValueError, error, None) if exc else None
        record = logging.LogRecord("x", level, "x.py", line, message, (), trace)
        record.created = at
        self.handle(record)


def test_a_flood_is_summarized() -> None:
    """The first lines of a place are written, and the others become one line after the window."""
    lines = Lines()
    for number in range(100):
        lines.log(number / 100, f"pod {number}")
    lines.log(1.0, "another place", line=2)
    assert lines.written == ["pod 0", "pod 1", "another place"]
    lines.log(12.0, "an hour later", line=3)
    assert lines.written[3:] == [
        "98 more lines like the following were suppressed within 12 s: pod 99",
        "an hour later",
    ]


def test_lines_below_the_rate_pass() -> None:
    """Lines at a low rate are all written."""
    lines = Lines()
    for number in range(10):
        lines.log(number * 6.0, f"pod {number}")
    assert len(lines.written) == 10


@pytest.mark.parametrize(
    ("level", "exc"),
    [pytest.param(logging.INFO, False, id="info"), pytest.param(logging.ERROR, True, id="with a traceback")],
)
def test_info_and_traceback_lines_pass(level: int, exc: bool) -> None:
    """Lines below WARNING and lines with a traceback always pass."""
    lines = Lines()
    for _ in range(9):
        lines.log(0.0, "a line", level=level, exc=exc)
    assert len(lines.written) == 9


def test_threads_log_at_the_same_time() -> None:
    """Lines of new places in four threads, as their windows end, are filtered without an error."""
    lines = Lines()

    def log(thread: int) -> None:
        for number in range(3000):
            lines.log(number / 100, "text", line=3000 * thread + number)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(log, range(4)))
    finally:
        sys.setswitchinterval(before)
    assert len(lines.written) == 12000
