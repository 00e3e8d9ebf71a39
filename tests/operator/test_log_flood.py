"""A flood of like lines."""

from __future__ import annotations

import logging

import pytest
from bayplan.log_flood import FloodFilter


class Lines(logging.Handler):
    """Keeps what it is given, through a flood filter of two lines in ten seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []
        self.addFilter(FloodFilter(self, most=2, window_seconds=10.0))

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())

    def log(self, at: float, message: str, line: int = 1, level: int = logging.WARNING, exc: bool = False) -> None:
        error = ValueError("bad")
        trace = (ValueError, error, None) if exc else None
        record = logging.LogRecord("x", level, "x.py", line, message, (), trace)
        record.created = at
        self.handle(record)


def test_a_flood_is_summed_up() -> None:
    """The first lines of one place are written, the rest is one line after the window, whatever comes next."""
    lines = Lines()
    for number in range(100):
        lines.log(number / 100, f"pod {number}")
    lines.log(1.0, "another place", line=2)
    assert lines.told == ["pod 0", "pod 1", "another place"]
    lines.log(12.0, "an hour later", line=3)
    assert lines.told[3:] == [
        "98 more lines like the following were left out within 12 s: pod 99",
        "an hour later",
    ]


def test_a_window_that_is_over_counts_anew() -> None:
    """Lines at a slow pace are all written."""
    lines = Lines()
    for number in range(10):
        lines.log(number * 6.0, f"pod {number}")
    assert len(lines.told) == 10


@pytest.mark.parametrize(
    ("level", "exc"),
    [pytest.param(logging.INFO, False, id="no trouble"), pytest.param(logging.ERROR, True, id="with a traceback")],
)
def test_some_lines_always_pass(level: int, exc: bool) -> None:
    """What is no warning, and what carries a traceback."""
    lines = Lines()
    for _ in range(9):
        lines.log(0.0, "a line", level=level, exc=exc)
    assert len(lines.told) == 9
