"""How two specs differ, in a few words and line by line.

Owns the words. It must not know where the specs come from. Why entries of lists are told by their names: their numbers
say nothing to who reads a table, and move when an entry is added above.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from bayplan.printable import printable_yaml

_WIDTH = 120
_SHOWN = 48
_ABSENT = object()


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Tell each difference.

    Args:
        old: A spec in plain JSON types.
        new: Another.

    Returns:
        Such as ``podMaxBackoffSeconds: 10 → 20``, in the order of the fields' paths; empty for equal specs.
    """
    before, after = dict(_leaves(old, "")), dict(_leaves(new, ""))
    told = []
    for path in sorted({*before, *after}):
        was, now = before.get(path, _ABSENT), after.get(path, _ABSENT)
        if was is _ABSENT:
            told.append(f"+{path}{_of(now)}")
        elif now is _ABSENT:
            told.append(f"-{path}{_of(was)}")
        elif was != now:
            told.append(f"{path}: {_shown(was)} → {_shown(now)}")
    if not told and old != new:
        told.append("order of entries")
    return told


def in_short(told: list[str]) -> str:
    """The first difference, and how many more there are; ``nothing`` for none."""
    if not told:
        return "nothing"
    return told[0] if len(told) == 1 else f"{told[0]} and {len(told) - 1} more"


def unified_diff(old: Mapping[str, Any], new: Mapping[str, Any], names: tuple[str, str]) -> str:
    """Tell the differences line by line, as ``diff -u`` does.

    Args:
        old: A spec.
        new: Another.
        names: What the two are called.

    Returns:
        Text that ends in a line break; empty for equal specs.
    """
    before, after = (as_yaml(dict(spec)).splitlines(keepends=True) for spec in (old, new))
    return "".join(difflib.unified_diff(before, after, *names))


def as_yaml(document: Any) -> str:
    """Write a document as YAML, keys in their order."""
    return printable_yaml(document, _WIDTH)


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping) and (node or not path):
        for name, value in node.items():
            yield from _leaves(value, f"{path}.{name}" if path else str(name))
    elif isinstance(node, list | tuple) and node and all(_name_of(entry) for entry in node):
        for entry in node:
            rest = {key: value for key, value in entry.items() if key not in ("name", "urlPrefix")}
            yield from _leaves(rest or None, f"{path}[{_name_of(entry)}]")
    else:
        yield path, node


def _name_of(entry: Any) -> str:
    """What an entry of a list is known by; empty when it has no name."""
    if not isinstance(entry, Mapping):
        return ""
    return str(entry.get("name") or entry.get("urlPrefix") or "")


def _of(value: Any) -> str:
    return "" if value is None else f": {_shown(value)}"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 4]} ..."
