"""Checks that text is plain technical English: no file uses a word of ``banned_words.toml``."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

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
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *PATTERNS],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    patterns = [(re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", re.IGNORECASE), words[pattern]) for pattern in words]
    for name in listed:
        if name == LIST or name.startswith(_NOT_CHECKED) or not (root / name).is_file():
            continue
        exempt_lines = {line.strip() for line in exempt.get(name, ())}
        for number, line in enumerate((root / name).read_text(encoding="utf-8").splitlines(), 1):
            if line.strip() in exempt_lines:
                continue
            for pattern, instead in patterns:
                for match in pattern.finditer(line):
                    yield Finding(name, number, match[0], instead)


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
