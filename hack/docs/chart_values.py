"""Generates the table of the chart's values in its README from ``values.yaml``.

The descriptions are the comments of that file: a second text would soon differ from them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import yaml
from yaml.nodes import MappingNode, Node

from hack.docs.field_tables import table

_CHART = Path(__file__).resolve().parents[2] / "charts" / "bayplan"
_BEGIN = "<!-- values: made by `make docs` from values.yaml -->\n"
_END = "<!-- end of values -->\n"
_LONGEST_DEFAULT = 60


def chart_readme() -> str:
    """Generate the chart's README: the hand-written text, and the table between its marks."""
    text = (_CHART / "README.md").read_text(encoding="utf-8")
    before, found, rest = text.partition(_BEGIN)
    _, ended, after = rest.partition(_END)
    if not (found and ended):
        raise ValueError(f"charts/bayplan/README.md lacks the lines {_BEGIN!r} and {_END!r}: put them back")
    rows = [(f"`{path}`", default, words) for path, default, words in _rows()]
    return "".join([before, _BEGIN, "\n", table(("value", "default", "what it is"), rows), "\n", _END, after])


def _rows() -> Iterator[tuple[str, str, str]]:
    """Yield path, default and description of every value that can be set separately."""
    text = (_CHART / "values.yaml").read_text(encoding="utf-8")
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, MappingNode)
    yield from _below("", root, text.splitlines())


def _below(prefix: str, node: MappingNode, lines: list[str]) -> Iterator[tuple[str, str, str]]:
    for key, value in node.value:
        path = f"{prefix}{key.value}"
        # A mapping whose fields have no comments is a single value for users.
        if isinstance(value, MappingNode) and value.value and _is_explained(lines, value.value[0][0]):
            yield from _below(f"{path}.", value, lines)
        else:
            yield path, _shown(value), _comment(lines, key.start_mark.line)


def _is_explained(lines: list[str], key: Node) -> bool:
    return lines[key.start_mark.line - 1].lstrip().startswith("#")


def _shown(node: Node) -> str:
    """Return the default in one line; a long one is abbreviated."""
    value = yaml.SafeLoader("").construct_document(node)
    text = json.dumps(value)
    return f"`{text}`" if len(text) <= _LONGEST_DEFAULT else "see values.yaml"


def _comment(lines: list[str], line: int) -> str:
    """Return the comment above a line; if another value is there, the comment of that value covers both."""
    found: list[str] = []
    above = line - 1
    while above >= 0 and re.match(r"\s*#", lines[above]):
        found.insert(0, lines[above].strip().lstrip("#").strip())
        above -= 1
    if not found and above >= 0 and lines[above].strip() and not lines[above].rstrip().endswith(":"):
        return _comment(lines, above)
    return " ".join(found)
