"""Differences between two specs, as short texts and as a diff.

List entries are identified by their names and not by indexes, which mean little in a table and change when an entry is
inserted before.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from bayplan.texts.printable import printable_yaml

_WIDTH = 120
_SHOWN = 48
_ABSENT = object()


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """List each difference.

    Args:
        old: A spec in plain JSON types.
        new: Another.

    Returns:
        Such as ``podMaxBackoffSeconds: 10 → 20``, sorted by the fields' paths; empty for equal specs.
    """
    before, after = dict(_leaves(old, "")), dict(_leaves(new, ""))
    found = []
    for path in sorted({*before, *after}):
        was, now = before.get(path, _ABSENT), after.get(path, _ABSENT)
        if was is _ABSENT:
            found.append(f"+{path}{_of(now)}")
        elif now is _ABSENT:
            found.append(f"-{path}{_of(was)}")
        elif was != now:
            found.append(f"{path}: {_shown(was)} → {_shown(now)}")
    if not found and old != new:
        found.append("order of entries")
    return found


def changes_summary(differences: list[str]) -> str:
    """Return the first difference and the number of the others; ``nothing`` for none."""
    if not differences:
        return "nothing"
    return differences[0] if len(differences) == 1 else f"{differences[0]} and {len(differences) - 1} more"


def unified_diff(old: Mapping[str, Any], new: Mapping[str, Any], names: tuple[str, str]) -> str:
    """Compare line by line, like ``diff -u``.

    Args:
        old: A spec.
        new: Another.
        names: Names of the two.

    Returns:
        Text that ends in a line break; empty for equal specs.
    """
    before, after = (as_yaml(dict(spec)).splitlines(keepends=True) for spec in (old, new))
    return "".join(difflib.unified_diff(before, after, *names))


def as_yaml(document: Any) -> str:
    """Render a document as YAML with keys in their own order."""
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
    """Return the name of a list entry; empty if it has none."""
    if not isinstance(entry, Mapping):
        return ""
    return str(entry.get("name") or entry.get("urlPrefix") or "")


def _of(value: Any) -> str:
    return "" if value is None else f": {_shown(value)}"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 4]} ..."
