"""Errors of the CEL compiler and evaluator, and the text in which compile errors are reported.

The text of a compile error is cel-go's: position, message, the source line and a mark below the column.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_core.errors import SchedulerCoreError

_MAX_SNIPPET = 16_384


class TooComplexError(SchedulerCoreError):
    """An expression or a type in it exceeds a bound of the compiler; nothing is evaluated."""


class EvaluationError(SchedulerCoreError):
    """Evaluation failed. ``||`` and ``&&`` absorb it when their other side decides."""


class AbortedError(SchedulerCoreError):
    """Evaluation ended where the reference fails internally. Nothing absorbs it."""


class CostLimitError(AbortedError):
    """Evaluation exceeded the cost limit."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class InvalidExpressionError(SchedulerCoreError):
    """An expression does not compile."""


@dataclass(frozen=True)
class Position:
    """A position in an expression.

    Attributes:
        line: The line, from 1; -1 for no position.
        column: The column in code points, from 0.
    """

    line: int
    column: int


NO_POSITION = Position(-1, -1)


class SourceText:
    """An expression with its lines."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.split("\n")
        self._starts = [0]
        for line in self.lines[:-1]:
            self._starts.append(self._starts[-1] + len(line) + 1)

    def position(self, offset: int) -> Position:
        """Return the position of the code point at *offset*; negative for no position."""
        if offset < 0:
            return NO_POSITION
        if not self.text:
            return Position(1, -1)
        low, high = 0, len(self._starts) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._starts[middle] <= offset:
                low = middle
            else:
                high = middle - 1
        return Position(low + 1, offset - self._starts[low])


class Problems:
    """Compile errors of one expression, reported in the order of their positions."""

    _LIMIT = 100

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self._reports: list[tuple[Position, str]] = []

    def __bool__(self) -> bool:
        return bool(self._reports)

    def report(self, offset: int, message: str) -> None:
        """Record a problem at a code point offset; negative for a problem without position."""
        self._reports.append((self.source.position(offset), message))

    def raise_if_any(self) -> None:
        """Raise the problems recorded before, if any.

        Raises:
            InvalidExpressionError: At least one problem was recorded.
        """
        if not self._reports:
            return
        shown = sorted(self._reports[: self._LIMIT], key=lambda report: (report[0].line, report[0].column))
        texts = [self._text(position, message) for position, message in shown]
        if len(self._reports) > self._LIMIT:
            texts.append(f"{len(self._reports) - self._LIMIT} more errors were truncated")
        raise InvalidExpressionError("compilation failed: " + "\n".join(texts))

    def _text(self, position: Position, message: str) -> str:
        report = f"ERROR: <input>:{position.line}:{position.column + 1}: {message}"
        if not 1 <= position.line <= len(self.source.lines):
            return report
        line = self.source.lines[position.line - 1].replace("\t", " ")
        if not self.source.text or len(line.encode()) > _MAX_SNIPPET:
            return report
        before = line[: position.column]
        mark = "".join("." if char.isascii() else "\uff0e" for char in before)
        below = "^" if line[position.column : position.column + 1].isascii() else "\uff3e"
        return f"{report}\n | {line}\n | {mark}{below}"
