"""Texts of others, as they may stand in a terminal and in a log.

Owns which characters are shown by their number instead of being sent. It must not know where a text comes from. Why:
messages repeat what extenders answer and what people write into manifests; an escape sequence in one could rewrite the
window of whoever looks, and a line break could feign a line of the log.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

# Control characters but tab and line feed; what turns the direction of text or breaks lines; halves of characters.
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def printable(text: str) -> str:
    """A text with every unfit character as its number; line feeds and tabs stay."""
    return _UNFIT.sub(_escape, text)


def printable_record(text: str) -> str:
    """The same for a log: further lines are indented, so that none looks like a record of its own."""
    return printable(text).replace("\n", "\n    ")


def printable_json(text: str) -> str:
    """JSON with every unfit character as JSON escapes it; they can only stand within its texts."""
    return _UNFIT.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def printable_yaml(document: Any, width: int) -> str:
    """A document as YAML, keys in their order, with every unfit character as YAML escapes it.

    Args:
        document: In plain JSON types.
        width: Characters to a line.
    """
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=width)
    # It escapes controls by itself, but takes what turns the direction of text for a letter like any other.
    return yaml.safe_dump(document, sort_keys=False, width=width) if _UNFIT.search(text) else text


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
