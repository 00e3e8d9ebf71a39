"""Output formats of documents (text, JSON, YAML), with control characters of text from other systems escaped.

Messages repeat what extenders answer and what users write into manifests. An escape sequence could rewrite a reader's
terminal, and a line break could fake a line of the log.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import yaml

from scheduler_core.errors import SchedulerCoreError, ServerUnavailableError, error_message

log = logging.getLogger(__name__)

T = TypeVar("T")

PIPED_WIDTH = 4096
"""Line width if stdout is not a terminal: in a file or for grep, one row is one line."""


def renderers(as_text: Callable[[T], str]) -> Mapping[str, Callable[[T], str]]:
    """Return the function that renders a document, by output format; YAML output ends with a line break."""
    return {"table": lambda document: as_text(printable_document(document)), "json": as_json, "yaml": _as_yaml}


def printable_document(document: T) -> T:
    """Return a copy whose strings cannot fake table rows: control characters escaped, line breaks indented."""
    return msgspec.convert(printable_builtins(document), type(document))


def printable_builtins(document: Any) -> Any:
    """Return a document as plain JSON types, with its strings as those of :func:`printable_document`."""
    return _fit(msgspec.to_builtins(document, str_keys=True))


def _fit(value: Any) -> Any:
    if isinstance(value, str):
        return printable_record(value)
    if isinstance(value, dict):
        return {_fit(key): _fit(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_fit(each) for each in value]
    return value


def listed(names: Sequence[str], most: int = 8) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def counted(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"


def capitalized(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def as_json(document: Any) -> str:
    return printable_json(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def _as_yaml(document: Any) -> str:
    return yaml.safe_dump(msgspec.json.decode(msgspec.json.encode(document)), sort_keys=False, width=PIPED_WIDTH)


def read_answer(answer: bytes, kind: type[T], what: str) -> T:
    """Decode a document that the operator returned; raises ServerUnavailableError if it is not such a document."""
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.DecodeError as error:
        message = f"the response is not {what} ({error}); is --server a Bayplan of this version?"
        raise ServerUnavailableError(message) from error


_MAX_LOGGED = 256
_logged: set[tuple[str, str]] = set()


def item_or_error(what: str, build: Callable[[], T], failed: Callable[[str], T]) -> T:
    """Build one item of a document; the log names it ``what``, such as ``the explanation of a pod``."""
    try:
        return build()
    except Exception as error:  # noqa: BLE001 - logged, and shown in the place of the item
        return failed(error_text(what, error))


def error_text(what: str, error: Exception) -> str:
    """Return the text of an error for readers; one that is not raised on purpose is logged, equal ones once."""
    text = error_message(error)
    if not isinstance(error, SchedulerCoreError) and (what, text) not in _logged:
        if len(_logged) >= _MAX_LOGGED:
            _logged.clear()
        _logged.add((what, text))
        log.error("%s cannot be built: %s", what, text, exc_info=error)
    return text


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
