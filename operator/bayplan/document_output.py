"""Documents that the operator answers with, and how commands print them: for people, as JSON and as YAML.

Owns the forms that ``-o`` names, and what is said of an answer that cannot be read. It must not know what is shown,
nor how it is laid out for people.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
import yaml

from bayplan.printable import printable_json, printable_record
from scheduler_core.errors import ServerUnavailableError

T = TypeVar("T")

PIPED_WIDTH = 4096
"""Characters to a line where nobody looks: a file or grep wants one row on one line."""


def renderers(as_text: Callable[[T], str]) -> Mapping[str, Callable[[T], str]]:
    """Give what prints a document, by what ``-o`` calls it; YAML ends its last line by itself.

    Args:
        as_text: Prints it for people.
    """
    return {"table": lambda document: as_text(fit_for_lines(document)), "json": _as_json, "yaml": _as_yaml}


def fit_for_lines(document: T) -> T:
    """Give a document whose texts feign no line when they are laid out; all that a text holds is still told.

    Args:
        document: A struct that could be sent as JSON.
    """
    return msgspec.convert(_fit(msgspec.to_builtins(document)), type(document))


def _fit(value: Any) -> Any:
    if isinstance(value, str):
        return printable_record(value)
    if isinstance(value, dict):
        return {_fit(key): _fit(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_fit(each) for each in value]
    return value


def _as_json(document: Any) -> str:
    return printable_json(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def _as_yaml(document: Any) -> str:
    return yaml.safe_dump(msgspec.json.decode(msgspec.json.encode(document)), sort_keys=False, width=PIPED_WIDTH)


def read_answer(answer: bytes, kind: type[T], what: str) -> T:
    """Read a document that the operator answered with.

    Args:
        answer: Its JSON.
        kind: The document's type.
        what: What it should be, with its article.

    Raises:
        ServerUnavailableError: It is something else.
    """
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.DecodeError as error:
        message = f"the answer is not {what} ({error}); is --server a Bayplan of this version?"
        raise ServerUnavailableError(message) from error
