"""Documents on a terminal, in a pipe, as JSON and as YAML.

Owns how wide and how coloured text is, and what a table looks like. It must not know what is shown.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import msgspec
import yaml
from rich.console import Console, RenderableType
from rich.table import Table

_PIPED_WIDTH = 4096
"""Characters to a line where nobody looks: a file or grep wants one row on one line."""


def text_of(sections: Iterable[RenderableType]) -> str:
    """Lay out sections with an empty line between them.

    Returns:
        Text as wide as the terminal and coloured where it is one, else plain and one row a line.
    """
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else _PIPED_WIDTH, highlight=False)
    with console.capture() as capture:
        for number, section in enumerate(sections):
            if number:
                console.print()
            console.print(section)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def indented_json(document: bytes) -> str:
    """Give a JSON document as people read it."""
    return msgspec.json.format(document, indent=2).decode()


def yaml_of(document: bytes) -> str:
    """Give a JSON document as YAML; it ends its last line by itself."""
    return yaml.safe_dump(msgspec.json.decode(document), sort_keys=False, width=_PIPED_WIDTH)


def plain_table(*headings: str) -> Table:
    """Make a table without lines."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
