"""Tests of untrusted text in a terminal and in a log."""

from __future__ import annotations

import json
import logging

import pytest
from bayplan.process.log_output import JsonFormatter, TextFormatter
from bayplan.texts.document_formats import printable, printable_json, printable_record, renderers
from bayplan.texts.report_sections import text_of
from rich.table import Table
from rich.text import Text

from tests.support.tables import table

HOSTILE = "a\x1b[2J\x1b]0;owned\x07\x9b31m\u202eb\rc"
ESCAPED = r"a\x1b[2J\x1b]0;owned\x07\x9b31m\u202eb\x0dc"


@table(
    "text, expected",
    ("hostile", HOSTILE, ESCAPED),
    ("lone surrogate", "half \ud800", r"half \ud800"),
    ("lines and tabs", "two\n\tlines", "two\n\tlines"),
    ("any script", "grüß dich 魚 \U0001f600", "grüß dich 魚 \U0001f600"),
)
def test_control_characters_are_escaped(text: str, expected: str) -> None:
    """Characters that can control a terminal are escaped."""
    assert printable(text) == expected


def test_a_line_break_cannot_forge_a_record() -> None:
    """A line break in a text does not start a new log record."""
    assert printable_record("bad name\n2026-01-01 ERROR forged") == "bad name\n    2026-01-01 ERROR forged"


def test_escaped_json_decodes_to_the_same_text() -> None:
    escaped = printable_json(json.dumps({"a": HOSTILE}, ensure_ascii=False))
    assert json.loads(escaped) == {"a": HOSTILE}
    assert printable(escaped) == escaped


@table("section", ("plain", HOSTILE), ("styled", Text(HOSTILE)))
def test_tables_and_texts(section: str | Text) -> None:
    """Tables are escaped, and square brackets are not markup."""
    table = Table()
    table.add_column("[/bold]")
    table.add_row(section)
    escaped = text_of([table, section])
    assert "[/bold]" in escaped
    assert printable(escaped) == escaped


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_documents(output: str) -> None:
    """JSON and YAML output is escaped."""
    escaped = renderers(str)[output]({"message": HOSTILE})
    assert printable(escaped) == escaped


@table("formatter", ("text", TextFormatter()), ("json", JsonFormatter()))
def test_log_lines(formatter: logging.Formatter) -> None:
    """Log lines are escaped."""
    line = formatter.format(logging.LogRecord("x", logging.ERROR, "f", 1, "pod %s", (HOSTILE,), None))
    assert printable(line) == line
