"""Regular expressions with RE2's syntax, matched in time linear in the text."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2

from scheduler_core.cel.problems import EvaluationError

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = 8 << 20
# Texts of Go's regexp/syntax by what RE2 reports.
_GO_MESSAGES = (
    ("missing )", "missing closing )"),
    ("unexpected )", "unexpected )"),
    ("missing ]", "missing closing ]"),
    ("no argument for repetition operator", "missing argument to repetition operator"),
    ("invalid repetition size", "invalid repeat count"),
    ("bad repetition operator", "invalid nested repetition operator"),
    ("invalid escape sequence", "invalid escape sequence"),
    ("invalid character class range", "invalid character class range"),
    ("invalid character class", "invalid character class"),
    ("trailing \\", "trailing backslash at end of expression"),
    ("invalid perl operator", "invalid or unsupported Perl syntax"),
    ("invalid named capture group", "invalid named capture"),
    ("invalid UTF-8", "invalid UTF-8"),
)


@lru_cache(maxsize=1024)
def _compile(pattern: str) -> Any:
    return re2.compile(pattern, _OPTIONS)


def compile_pattern(pattern: str) -> Any:
    """Return the compiled pattern.

    Raises:
        EvaluationError: The pattern is invalid.
    """
    try:
        return _compile(pattern)
    except re2.error as error:
        raise EvaluationError(_message(pattern, error)) from None


def _message(pattern: str, error: Exception) -> str:
    raw = error.args[0] if error.args else ""
    text = raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
    for prefix, message in _GO_MESSAGES:
        if text.startswith(prefix):
            _, separator, part = text.partition(": ")
            if message == "trailing backslash at end of expression":
                return f"error parsing regexp: {message}: ``"
            shown = part if separator and message != "missing closing )" else pattern
            return f"error parsing regexp: {message}: `{shown}`"
    return f"error parsing regexp: {text}: `{pattern}`"


def is_cached(pattern: str) -> bool:
    """Return whether the pattern does not have to be compiled; compile it."""
    misses = _compile.cache_info().misses
    try:
        _compile(pattern)
    except re2.error:
        return False
    return _compile.cache_info().misses == misses


def matches(text: str, pattern: str) -> bool:
    """Return whether *pattern* matches anywhere in *text*."""
    return compile_pattern(pattern).search(text) is not None


def find(text: str, pattern: str) -> str:
    """Return the first match, empty if there is none."""
    match = compile_pattern(pattern).search(text)
    return "" if match is None else str(match.group())


def find_all(text: str, pattern: str, limit: int) -> tuple[str, ...]:
    """Return the first *limit* matches, all if it is negative. An empty match beside a match does not count."""
    found: list[str] = []
    end_of_last = -1
    for match in compile_pattern(pattern).finditer(text):
        if 0 <= limit <= len(found):
            break
        if match.start() == match.end() == end_of_last:
            continue
        end_of_last = match.end()
        found.append(str(match.group()))
    return tuple(found)
