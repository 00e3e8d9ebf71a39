"""Text and tables for terminals.

Separate from :mod:`bayplan.texts.document_formats`: the operator returns documents too, but need not import ``rich``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from bayplan.texts.document_formats import PIPED_WIDTH
from bayplan.texts.printable import printable


def text_of(sections: Iterable[RenderableType]) -> str:
    """Render sections with an empty line between them.

    Returns:
        Text as wide as the terminal and coloured if stdout is one; otherwise plain text with one row per line.
    """
    console = Console(
        file=sys.stdout, width=None if sys.stdout.isatty() else PIPED_WIDTH, highlight=False, markup=False, emoji=False
    )
    with console.capture() as capture:
        for number, section in enumerate(sections):
            if number:
                console.print()
            console.print(_Printable(section))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


class _Printable:
    """A renderable whose own styles stay while escape sequences in its text are escaped."""

    def __init__(self, shown: RenderableType) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._shown, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def plain_table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
