"""The check of banned words that `make check` runs."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from hack.checks.plain_english import LIST, ROOT, Finding, findings, main
from tests.support.tables import table

_RULES = tomllib.loads((ROOT / LIST).read_text(encoding="utf-8"))
_WORDS = [word for alternatives in _RULES["words"] for word in alternatives.split("|")]
_WORD = _WORDS[0]  # not written out, since the check reads this file too


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Create a repository with the real list of banned words and one page without any."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / LIST).parent.mkdir(parents=True)
    shutil.copy(ROOT / LIST, tmp_path / LIST)
    (tmp_path / "README.md").write_text("Bayplan reports the reason.\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("word", _WORDS)
def test_a_banned_word_fails_the_check(repository: Path, capsys: pytest.CaptureFixture[str], word: str) -> None:
    """The output names the file, the line and the replacement of a banned word."""
    assert main(repository) == 0
    (repository / "page.md").write_text(f"One line.\nA pod, {word.capitalize()}, waits.\n", encoding="utf-8")
    assert main(repository) == 1
    assert capsys.readouterr().out.startswith(f'page.md:2: "{word.capitalize()}": write ')


@table(
    "path, text",
    ("comment", "module.py", f"# A {_WORD} b.\n"),
    ("name", "module.py", f"{_WORD} = 1\n"),
    ("Go", "main.go", f"// A {_WORD} b.\n"),
    ("added Go file", "external.go.txt", f"// A {_WORD} b.\n"),
    ("JavaScript", "assets/app.mjs", f"// A {_WORD} b.\n"),
    ("values", "chart/values.yaml", f"# A {_WORD} b.\n"),
    ("target", "Makefile", f"help: ## A {_WORD} b\n"),
)
def test_all_files_are_checked(repository: Path, path: str, text: str) -> None:
    """Comments and names in all languages, charts and the Makefile are checked as well as pages."""
    (repository / path).parent.mkdir(exist_ok=True)
    (repository / path).write_text(text, encoding="utf-8")
    assert [found.path for found in findings(repository, _RULES["words"], {})] == [path]


@table(
    "path, text",
    ("part of a word", "page.md", f"A{_WORD} {_WORD}s-x a-{_WORD} b.\n"),
    ("history", "CHANGELOG.md", f"A {_WORD} b.\n"),
    ("other project", "operator/bayplan/page/assets/vendor/licence.txt", f"A {_WORD} b.\n"),
    ("binary file", "page.bin", f"A {_WORD} b.\n"),
    ("exempt line", "page.md", f"  Upstream {_WORD}.\n"),
)
def test_exceptions_of_the_check(repository: Path, path: str, text: str) -> None:
    """Parts of words, the changelog, other file types and exempt lines are not reported."""
    (repository / path).parent.mkdir(parents=True, exist_ok=True)
    (repository / path).write_text(text, encoding="utf-8")
    assert list(findings(repository, _RULES["words"], {path: [f"Upstream {_WORD}."]})) == []


def test_an_exemption_is_for_one_line(repository: Path) -> None:
    """Another line of the same file with the same word is reported."""
    (repository / "page.md").write_text(f"A {_WORD}.\nA {_WORD} b.\n", encoding="utf-8")
    found = list(findings(repository, {_WORD: "reported"}, {"page.md": [f"A {_WORD}."]}))
    assert found == [Finding("page.md", 2, _WORD, "reported")]
