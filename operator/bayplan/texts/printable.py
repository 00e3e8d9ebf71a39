"""Escapes control characters in text from other systems, for terminals and logs.

Messages repeat what extenders answer and what users write into manifests. An escape sequence could rewrite a reader's
terminal, and a line break could fake a line of the log.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

# Control characters except tab and line feed; characters that change text direction or break lines; lone surrogates.
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def printable(text: str) -> str:
    """Escape every unfit character; line feeds and tabs stay."""
    return _UNFIT.sub(_escape, text)


def printable_record(text: str) -> str:
    """Escape text for a log: further lines are indented, so that none looks like a record of its own."""
    return printable(text).replace("\n", "\n    ")


def printable_json(text: str) -> str:
    """Escape every unfit character of a JSON text as JSON does; they occur only within its strings."""
    return _UNFIT.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def printable_yaml(document: Any, width: int) -> str:
    """Render a document as YAML in its own key order, with every unfit character escaped as YAML does."""
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=width)
    # PyYAML escapes control characters by itself, but writes those that change text direction as they are.
    return yaml.safe_dump(document, sort_keys=False, width=width) if _UNFIT.search(text) else text


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
