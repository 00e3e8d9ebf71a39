"""Texts of others in a terminal and in a log."""

from __future__ import annotations

import json
import logging

import pytest
from bayplan.document_output import renderers
from bayplan.log_output import JsonFormatter, TextFormatter
from bayplan.printable import printable, printable_json, printable_record
from bayplan.text_output import text_of
from rich.table import Table
from rich.text import Text

HOSTILE = "a\x1b[2J\x1b]0;owned\x07\x9b31m\u202eb\rc"
SHOWN = r"a\x1b[2J\x1b]0;owned\x07\x9b31m\u202eb\x0dc"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param(HOSTILE, SHOWN, id="hostile"),
        pytest.param("half \ud800", r"half \ud800", id="half a character"),
        pytest.param("two\n\tlines", "two\n\tlines", id="lines and tabs"),
        pytest.param("grüß dich 魚 \U0001f600", "grüß dich 魚 \U0001f600", id="any script"),
    ],
)
def test_what_is_unfit_is_shown_by_its_number(text: str, shown: str) -> None:
    """What could act on a terminal is told, not sent."""
    assert printable(text) == shown


def test_no_line_of_a_record_looks_like_another_one() -> None:
    """A line break in a text cannot feign a record."""
    assert printable_record("bad name\n2026-01-01 ERROR forged") == "bad name\n    2026-01-01 ERROR forged"


def test_json_stays_what_it_was() -> None:
    """It reads back as the same text."""
    escaped = printable_json(json.dumps({"a": HOSTILE}, ensure_ascii=False))
    assert json.loads(escaped) == {"a": HOSTILE}
    assert printable(escaped) == escaped


@pytest.mark.parametrize("section", [pytest.param(HOSTILE, id="plain"), pytest.param(Text(HOSTILE), id="styled")])
def test_tables_and_texts(section: str | Text) -> None:
    """Also within a table, where brackets are brackets."""
    table = Table()
    table.add_column("[/bold]")
    table.add_row(section)
    shown = text_of([table, section])
    assert "[/bold]" in shown
    assert printable(shown) == shown


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_documents(output: str) -> None:
    """What is printed for programs is safe to look at too."""
    shown = renderers(str)[output]({"message": HOSTILE})
    assert printable(shown) == shown


@pytest.mark.parametrize(
    "formatter", [pytest.param(TextFormatter(), id="text"), pytest.param(JsonFormatter(), id="json")]
)
def test_log_lines(formatter: logging.Formatter) -> None:
    """Whoever follows the log is as safe."""
    line = formatter.format(logging.LogRecord("x", logging.ERROR, "f", 1, "pod %s", (HOSTILE,), None))
    assert printable(line) == line
