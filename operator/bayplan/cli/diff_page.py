"""Renders the comparison of two profiles as one HTML page without scripts or outside resources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from bayplan.cli.diff_report import figure_rows, pod_row, summary
from bayplan.comparison.profile_comparison import Comparison
from bayplan.texts.printable import printable_record

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem; color: #1b1f24; }
table { border-collapse: collapse; margin: 1rem 0 2rem; width: 100%; }
th, td { border-bottom: 1px solid #d0d7de; padding: .35rem .75rem .35rem 0; text-align: left; vertical-align: top; }
th { font-weight: 600; }
td { overflow-wrap: anywhere; }
@media (prefers-color-scheme: dark) {
  body { background: #0d1117; color: #e6edf3; }
  th, td { border-color: #30363d; }
}
"""


def as_html(comparison: Comparison) -> str:
    """Return a page with the summary, the figures, all pods that differ, and the notices."""
    title = f"{comparison.before.title} and {comparison.after.title}"
    notices = [
        *comparison.notices,
        *(f"with {side.title}: {each}" for side in (comparison.before, comparison.after) for each in side.notices),
    ]
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        f'<head><meta charset="utf-8"><title>{_text(title)}</title><style>{_STYLE}</style></head>',
        "<body>",
        f"<h1>{_text(title)}</h1>",
        f"<p>{_text(summary(comparison))}</p>",
        "<h2>Figures</h2>",
        _table(("", "Before", "After"), figure_rows(comparison)),
    ]
    if comparison.differences:
        rows = (pod_row(each) for each in comparison.differences)
        parts += ["<h2>Pods</h2>", _table(("Pod", "Change", "Runs on", "Before", "After", "Reason"), rows)]
    if notices:
        items = "".join(f"<li>{_text(notice)}</li>" for notice in notices)
        parts += ["<h2>Notes</h2>", f"<ul>{items}</ul>"]
    return "\n".join([*parts, "</body>", "</html>", ""])


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{_text(heading)}</th>' for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>\n" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table>"


def _text(text: str) -> str:
    return escape(printable_record(text))
