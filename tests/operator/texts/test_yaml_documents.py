"""Tests of hostile YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from bayplan.cli import bayplan
from bayplan.texts import yaml_documents
from click.testing import CliRunner

from tests.support.tables import table

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 12)
)
HOSTILE = [
    pytest.param(BOMB, "aliases expand to more than 100,000 values", id="bomb"),
    pytest.param("a: &a [*a]", "alias within its own anchor at line 1", id="alias of itself"),
    pytest.param("[" * 100_000 + "]" * 100_000, "nested deeper than 100 levels at line 1", id="deep"),
    pytest.param("- " * 5_000 + "x", "nested deeper than 100 levels", id="deep lists"),
    pytest.param("kind: Pod\nkind: Node", 'has the key "kind" twice in one mapping, at line 2', id="key twice"),
    pytest.param("a: !!python/object/apply:os.system [id]", "could not determine a constructor", id="code"),
]
UNREADABLE = [
    pytest.param(f"a: {'9' * 5_000}", "put it in quotes", id="number of 5,000 digits"),
    pytest.param("a: 2026-02-31", "put it in quotes", id="invalid date"),
]


@table(
    "text, document",
    ("empty", "", None),
    ("alias", "a: &x [1, 2]\nb: *x", {"a": [1, 2], "b": [1, 2]}),
    ("merge", "a: &x {b: 1}\nc: {<<: *x, d: 2}", {"a": {"b": 1}, "c": {"b": 1, "d": 2}}),
    ("scalars", "a: 2026-01-31\nb: null", yaml.safe_load("a: 2026-01-31\nb: null")),
)
def test_harmless(text: str, document: Any) -> None:
    """Harmless YAML is parsed as usual."""
    assert yaml_documents.load(text) == document


@pytest.mark.parametrize(("text", "message"), HOSTILE + UNREADABLE)
def test_hostile(text: str, message: str) -> None:
    """Hostile YAML is rejected with a message."""
    with pytest.raises(yaml.YAMLError, match=message):
        yaml_documents.load(text)


@pytest.mark.parametrize(("text", "message"), HOSTILE)
@table(
    "command",
    ("simulate", ("simulate",)),
    ("import-config", ("import-config",)),
    ("run-config", ("run", "--config")),
    ("run-settings", ("run", "--settings")),
)
def test_commands(tmp_path: Path, command: tuple[str, ...], text: str, message: str) -> None:
    """A command that reads hostile YAML exits with an error message."""
    file = tmp_path / "hostile.yaml"
    file.write_text(text)
    done = CliRunner().invoke(bayplan, [*command, str(file)])
    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize(("text", "message"), [row for row in HOSTILE if row.id != "key twice"])
def test_validate(tmp_path: Path, text: str, message: str) -> None:
    """``bayplan validate`` rejects hostile YAML."""
    file = tmp_path / "hostile.yaml"
    file.write_text(text)
    done = CliRunner().invoke(bayplan, ["validate", str(file)])
    assert done.exit_code == 2
    assert message in done.output
