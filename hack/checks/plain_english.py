"""Checks that text is plain technical English: no file uses a word of ``banned_words.toml``."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from hack.checks.file_length import tracked

ROOT = Path(__file__).resolve().parents[2]
LIST = "hack/checks/banned_words.toml"
PATTERNS = (
    "*.py",
    "*.go",
    "*.mjs",
    "*.md",
    "*.yaml",
    "*.yml",
    "*.tpl",
    "*.txt",
    "*.toml",
    "Makefile",
    "Dockerfile",
    ".ci/run",
)
_NOT_CHECKED = ("CHANGELOG.md", "operator/bayplan/page/assets/vendor/")
"""History, and files of other projects."""
_TOKEN = re.compile(r"[\w-]+")


class Finding(NamedTuple):
    """A banned word: the file, its line from 1, the word, and what to write instead."""

    path: str
    line: int
    word: str
    instead: str


def findings(root: Path, words: Mapping[str, str], exempt: Mapping[str, list[str]]) -> Iterator[Finding]:
    """Yield the banned words in the text files of a repository that git tracks or would track.

    Args:
        words: What to write instead, by the pattern of the banned words.
        exempt: Lines that are not checked, by path.
    """
    rows = [_Row(pattern.split("|"), instead) for pattern, instead in words.items()]
    for name in tracked(root, PATTERNS):
        if name == LIST or name.startswith(_NOT_CHECKED) or not (root / name).is_file():
            continue
        text = (root / name).read_text(encoding="utf-8")
        lowered = text.lower()
        tokens = set(_TOKEN.findall(lowered))
        found = [row for row in rows if row.may_occur(lowered, tokens)]
        if not found:
            continue
        exempt_lines = {line.strip() for line in exempt.get(name, ())}
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip() in exempt_lines:
                continue
            for row in found:
                for match in row.pattern.finditer(line):
                    yield Finding(name, number, match[0], row.instead)


class _Row:
    """A row of the list: banned words and phrases, and what to write instead."""

    def __init__(self, words: list[str], instead: str) -> None:
        self.pattern = re.compile(rf"(?<![\w-])(?:{'|'.join(words)})(?![\w-])", re.IGNORECASE)
        self.instead = instead
        self._words = [(word.partition(" ")[0], word) for word in words]

    def may_occur(self, text: str, tokens: set[str]) -> bool:
        """Whether a text has one of the words; searching each line for each row would take ten times as long."""
        return any(first in tokens and (first == word or word in text) for first, word in self._words)


def main(root: Path = ROOT) -> int:
    """Print the banned words.

    Args:
        root: The repository, with the list of banned words.
    """
    rules = tomllib.loads((root / LIST).read_text(encoding="utf-8"))
    found = list(findings(root, rules["words"], rules["exempt"]))
    for path, line, word, instead in found:
        print(f'{path}:{line}: "{word}": write {instead}')
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
