"""Renders the sections of a report (texts, tables, groups) for a terminal, and as one HTML file without scripts.

The file needs no server. Its content security policy permits nothing but its own style sheet, so that text from a
cluster cannot load or run anything even if it was not escaped. Separate from ``document_formats``: the operator returns
documents too, but need not import ``rich``.
"""

from __future__ import annotations

import base64
import hashlib
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from html import escape
from pathlib import Path
from typing import TypeVar

from msgspec import Struct
from rich.console import Console, ConsoleOptions, Group, OverflowMethod, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from bayplan.texts.document_formats import PIPED_WIDTH, printable, printable_record, renderers

T = TypeVar("T")

ASSETS = Path(__file__).parents[1] / "page" / "assets"
_STYLES = ("vendor/uplot-1.6.32.css", "style.css", "report.css")
_CLASSES = frozenset({"bold", "dim", "green", "yellow", "red", "cyan", "magenta"})


class ReportHead(Struct, frozen=True):
    """Facts about a report, and its result, below its title.

    Attributes:
        facts: Names and values: when it was written, by which command, of which cluster and profiles.
        summary: The result in sentences.
    """

    facts: tuple[tuple[str, str], ...] = ()
    summary: tuple[str, ...] = ()


NO_HEAD = ReportHead()


def report_style() -> str:
    """Return the style sheet of all reports, which is that of the page; raises OSError."""
    return "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in _STYLES)


def head_lines(title: str, head: ReportHead) -> list[str]:
    """Return title, facts and summary as HTML."""
    facts = "; ".join(f"{escaped(name)}: {escaped(value)}" for name, value in head.facts)
    return [
        f'<header class="top"><h1>{escaped(title)}</h1></header>',
        *([f'<p class="report-facts">{facts}</p>'] if facts else []),
        *(f'<p class="report-summary">{escaped(text)}</p>' for text in head.summary),
    ]


def report_renderers(sections: Callable[[T], Iterable[RenderableType]]) -> Mapping[str, Callable[[T], str]]:
    """Return the function that renders a report, by output format, from what people read of it."""
    return renderers(lambda document: text_of(sections(document)))


def page_of(title: str, sections: Iterable[RenderableType], head: ReportHead = NO_HEAD) -> str:
    """Return a page.

    Args:
        sections: Texts, tables, and groups of them. A text that is bold and nothing else is a heading.

    Returns:
        HTML that ends with a line break. All text is escaped, control characters too.
    """
    body = [*head_lines(title, head), '<main class="tables">', *html_lines(sections), "</main>"]
    return html_document(title, report_style(), body)


def html_document(
    title: str, style: str, body: Iterable[str], *, scripts: Iterable[str] = (), head: Iterable[str] = ()
) -> str:
    """Return a document that may use its own style sheet, and the scripts with these hashes, and nothing else."""
    permitted = " ".join(f"'{each}'" for each in scripts)
    policy = "; ".join(
        (
            "default-src 'none'",
            *((f"script-src {permitted}",) if permitted else ()),
            f"style-src '{hash_source(style)}'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    lines = [
        "<!doctype html>",
        '<html lang="en">',
        '<head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escaped(title)}</title>",
        f"<style>{style}</style>",
        *head,
        "</head>",
        "<body>",
        *body,
        "</body>",
        "</html>",
        "",
    ]
    return "\n".join(lines)


def hash_source(text: str) -> str:
    """Return the hash of a script or style sheet as a content security policy and ``integrity`` name it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def html_lines(sections: Iterable[RenderableType], heading: str = "h2") -> list[str]:
    """Return the sections as HTML, with all text escaped."""
    return [line for section in sections for line in _lines(section, heading)]


def escaped(text: str) -> str:
    """Return text as HTML; control characters are shown escaped."""
    return escape(printable_record(text))


def _lines(section: RenderableType, heading: str) -> Iterator[str]:
    if isinstance(section, Group):
        for each in section.renderables:
            yield from _lines(each, heading)
    elif isinstance(section, Table):
        yield _table(section)
    elif isinstance(section, Text | str):
        yield _paragraph(section, heading)
    else:
        raise TypeError(f"a page has no {type(section).__name__}")


def _paragraph(text: Text | str, heading: str) -> str:
    classes = _classes(text)
    if isinstance(text, Text) and classes == ["bold"] and not text.spans:
        return f"<{heading}>{_inline(text)}</{heading}>"
    return f"<p{_attribute(classes)}>{_inline(text)}</p>"


def _table(table: Table) -> str:
    sides = ["right" if column.justify == "right" else "" for column in table.columns]
    head = "".join(_heading(column.header, side) for column, side in zip(table.columns, sides, strict=True))
    rows = zip(*(list(column.cells) for column in table.columns), strict=True)
    body = "\n".join(
        f"<tr>{''.join(_cell(cell, side) for cell, side in zip(row, sides, strict=True))}</tr>" for row in rows
    )
    # Wide tables scroll, also by keyboard.
    opening, closing = '<div class="scroll" tabindex="0"><table>', "</table></div>"
    return f"{opening}\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n{closing}"


def _heading(header: RenderableType, side: str) -> str:
    text = _inline(header)
    # A screen reader announces headings, which must not be empty.
    return f'<th scope="col"{_attribute([side])}>{text}</th>' if text else "<td></td>"


def _cell(cell: RenderableType, side: str) -> str:
    return f"<td{_attribute([side, *_classes(cell)])}>{_inline(cell)}</td>"


def _inline(text: RenderableType) -> str:
    """Return the escaped text; parts with styles of their own are spans."""
    if isinstance(text, str):
        return escaped(text)
    if not isinstance(text, Text):
        raise TypeError(f"a page has no {type(text).__name__} in its text")
    shown, end = [], 0
    for span in text.spans:
        shown.append(escaped(text.plain[end : span.start]))
        inner = escaped(text.plain[span.start : span.end])
        shown.append(f"<span{_attribute(_words(str(span.style)))}>{inner}</span>")
        end = span.end
    return "".join([*shown, escaped(text.plain[end:])])


def _classes(text: RenderableType) -> list[str]:
    return _words(str(text.style)) if isinstance(text, Text) else []


def _words(style: str) -> list[str]:
    return [word for word in style.split() if word in _CLASSES]


def _attribute(classes: Iterable[str]) -> str:
    named = " ".join(filter(None, classes))
    return f' class="{named}"' if named else ""


def text_of(sections: Iterable[RenderableType]) -> str:
    """Render sections, as wide as the terminal and coloured if stdout is one, otherwise with one row per line."""
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


def table_of(
    headings: Iterable[str], rows: Iterable[Iterable[object]], *, right: Container[int] = (), header_style: str = "dim"
) -> Table:
    """Return a table; a cell is shown as text, with the style that a Text has.

    Args:
        right: Positions of the columns with numbers, which are aligned right.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=header_style)
    for position, heading in enumerate(headings):
        is_right = position in right
        overflow: OverflowMethod = "ellipsis" if is_right else "fold"
        table.add_column(heading, overflow=overflow, justify="right" if is_right else "left", no_wrap=is_right)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    return table
