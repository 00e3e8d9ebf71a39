"""Whether a command prints what a page shows.

Owns the wildcards. It must not know commands. Why named wildcards and no free patterns in the pages: a reader should
see what the terminal shows, and no regular expression.
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
"""What differs from run to run, by the word that stands for it where a page and a terminal are compared."""

_ANYTHING = "..."


def agrees(shown: str, printed: str) -> bool:
    """Compare what a page shows with what was printed.

    Spaces and line breaks count only as separators, so that a page may wrap a long line. Three dots between spaces
    stand for anything, and each of WILDCARDS for any other of its kind.

    Args:
        shown: The page's lines.
        printed: The terminal's.
    """
    words = [".*?" if word == _ANYTHING else re.escape(word) + " " for word in _words(shown)]
    return re.fullmatch("".join(words), "".join(f"{word} " for word in _words(printed))) is not None


def _words(text: str) -> list[str]:
    for name, wildcard in WILDCARDS.items():
        text = wildcard.sub(f"<{name}>", text)
    return text.split()
