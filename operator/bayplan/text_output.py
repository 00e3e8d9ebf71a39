"""Texts and tables as commands lay them out for people.

Owns how wide and how coloured text is, and what a table looks like. It must not know what is shown. Why apart from
:mod:`bayplan.document_output`: the operator has documents too, but no terminal, and need not wait for what draws there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from bayplan.document_output import PIPED_WIDTH
from bayplan.printable import printable


def text_of(sections: Iterable[RenderableType]) -> str:
    """Lay out sections with an empty line between them.

    Returns:
        Text as wide as the terminal and coloured where it is one, else plain and one row a line.
    """
    console = Console(
        file=sys.stdout, width=None if sys.stdout.isatty() else PIPED_WIDTH, highlight=False, markup=False, emoji=False
    )
    with console.capture() as capture:
        for number, section in enumerate(sections):
            if number:
                console.print()
            console.print(Printable(section))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


class Printable:
    """Something for a console, whose own colours stay while those that its texts bring along do not.

    Args:
        shown: What is shown.
    """

    def __init__(self, shown: RenderableType) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Lay it out; the console calls this."""
        for segment in console.render(self._shown, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def plain_table(*headings: str) -> Table:
    """Make a table without lines."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
