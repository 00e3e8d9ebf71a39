"""Errors of the CEL compiler and evaluator, and the text in which compile errors are reported.

The text of a compile error is cel-go's: position, message, the source line and a mark below the column.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from scheduler_core.errors import SchedulerCoreError

_MAX_SNIPPET = 16_384
_MAX_REPORTS = 100


class EvaluationError(SchedulerCoreError):
    """Evaluation failed. ``||`` and ``&&`` absorb it when their other side decides."""


class AbortedError(SchedulerCoreError):
    """Evaluation ended where the reference fails internally. Nothing absorbs it."""


class CostLimitError(AbortedError):
    """Evaluation exceeded the cost limit."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class InvalidExpressionError(SchedulerCoreError):
    """An expression does not compile, or a type in it exceeds a bound of the compiler."""


class Problems:
    """Compile errors of one expression, reported in the order of their positions."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = text.split("\n")
        self._starts = list(accumulate([len(line) + 1 for line in self._lines[:-1]], initial=0))
        self._reports: list[tuple[tuple[int, int], str]] = []
        """By position: line from 1, and column in code points from 0; line -1 for no position."""

    def report(self, offset: int, message: str) -> None:
        """Record a problem at a code point offset; negative for a problem without position."""
        if offset < 0:
            position = -1, -1
        elif not self.text:
            position = 1, -1
        else:
            line = bisect_right(self._starts, offset)
            position = line, offset - self._starts[line - 1]
        self._reports.append((position, message))

    def raise_if_any(self) -> None:
        """Raise an InvalidExpressionError with the problems recorded before, if any."""
        if self._reports:
            raise self.error()

    def error(self) -> InvalidExpressionError:
        shown = sorted(self._reports[:_MAX_REPORTS], key=lambda report: report[0])
        texts = [self._text(*position, message) for position, message in shown]
        if len(self._reports) > _MAX_REPORTS:
            texts.append(f"{len(self._reports) - _MAX_REPORTS} more errors were truncated")
        return InvalidExpressionError("compilation failed: " + "\n".join(texts))

    def _text(self, number: int, column: int, message: str) -> str:
        report = f"ERROR: <input>:{number}:{column + 1}: {message}"
        if not self.text or not 1 <= number <= len(self._lines):
            return report
        line = self._lines[number - 1].replace("\t", " ")
        if len(line.encode(errors="surrogatepass")) > _MAX_SNIPPET:
            return report
        mark = "".join("." if char.isascii() else "\uff0e" for char in line[:column])
        below = "^" if line[column : column + 1].isascii() else "\uff3e"
        return f"{report}\n | {line}\n | {mark}{below}"
