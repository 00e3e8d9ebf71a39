"""Comparison of a command's output with the output that a page shows.

The pages have no regular expressions; wildcards are derived from what the terminal would show.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

WILDCARDS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "time": re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)?"),
        "date": re.compile(r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun),? [^\n]*? \d\d:\d\d:\d\d( [-+]\d{4})?( UTC| \d{4})?"),
        "uid": re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"),
        "age": re.compile(r"(?<![\w.-])(\d+(\.\d+)?(ms|s|m|h|d))+(?![\w-])|<invalid>"),
        "revision": re.compile(r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{8}\b"),
        "ip": re.compile(r"\b10(\.\d{1,3}){3}\b"),
        "rule": re.compile(r"-{3,}|={3,}"),
    }
)
"""Patterns of values that differ from run to run, by the word that replaces them in both texts."""

_ANYTHING = "..."


def agrees(shown: str, printed: str) -> bool:
    """Return whether the output of a command equals the output that a page shows.

    Spaces and line breaks only separate words, so that a page may wrap a long line. Three dots between spaces match any
    text, and each match of WILDCARDS matches any other value of the same kind.
    """
    words = [".*?" if word == _ANYTHING else re.escape(word) + " " for word in _words(shown)]
    return re.fullmatch("".join(words), "".join(f"{word} " for word in _words(printed))) is not None


def _words(text: str) -> list[str]:
    for name, wildcard in WILDCARDS.items():
        text = wildcard.sub(f"<{name}>", text)
    return text.split()
