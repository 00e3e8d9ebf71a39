"""Translates msgspec's decoding errors into problems with a field path and a remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from scheduler_core.errors import Problem

_PARTS = re.compile(r"(?P<text>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]+)`")
_EXPECTED = re.compile(r"Expected `(?P<expected>[^`]+)`, got `(?P<given>[^`]+)`")
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_ANY_VALUE = "[...]"

_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping of fields",
}


def decoding_problem(error: msgspec.ValidationError, body: Mapping[str, Any]) -> Problem:
    """Return the problem of an object that cannot be decoded.

    Returns:
        The first problem; msgspec does not report more than one.
    """
    match = _PARTS.fullmatch(str(error))
    assert match is not None
    text, path = match["text"], match["path"] or ""
    missing = _MISSING.fullmatch(text)
    if missing is not None:
        return Problem(f"{path}.{missing['field']}".lstrip("."), "is required; add it")
    expected = _EXPECTED.match(text)
    if expected is None:
        return Problem(_exact(path, body, ""), f"{text[:1].lower()}{text[1:]}; correct it")
    wanted = [_WORDS.get(kind.strip(), kind.strip()) for kind in expected["expected"].split("|")]
    given = expected["given"]
    message = f"must be {' or '.join(dict.fromkeys(wanted))}, not {_WORDS.get(given, given)}; "
    return Problem(_exact(path, body, expected["expected"]), message + _remedy(expected["expected"], given))


def _remedy(expected: str, given: str) -> str:
    if expected == "str" and given in ("int", "float", "bool"):
        return "put it in quotes"
    if given == "str" and expected.removesuffix(" | null") in ("int", "float", "bool"):
        return "remove the quotes"
    if expected == "array":
        return "begin each entry with -"
    return "correct it"


def _exact(path: str, body: Mapping[str, Any], expected: str) -> str:
    """Return the path with the key instead of ``[...]``, which msgspec writes for an invalid value of a mapping."""
    if not path.endswith(_ANY_VALUE):
        return path
    parent = path.removesuffix(_ANY_VALUE)
    node: Any = body
    for index, name in _STEP.findall(parent):
        try:
            node = node[int(index)] if index else node[name]
        except (KeyError, IndexError, TypeError):
            return parent
    if not isinstance(node, Mapping):
        return parent
    allowed = tuple(
        kind for name, kind in (("str", str), ("int", int), ("float", float)) if name in expected.split(" | ")
    )
    bad = [key for key, value in node.items() if isinstance(value, bool) or not isinstance(value, allowed)]
    return f"{parent}[{bad[0]}]" if bad else parent
