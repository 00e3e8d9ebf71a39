"""Text is plain technical English: no tracked file uses a word of ``banned_words.toml``.

Folders in ``NOT_YET_REWRITTEN`` are exempt until someone rewrites them; the list only gets shorter.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

LIST = "hack/checks/banned_words.toml"
PATTERNS = ("*.py", "*.md", "*.yaml", "*.yml", "*.tpl", "*.txt", "*.toml", "Makefile", "Dockerfile", ".ci/run")
NOT_YET_REWRITTEN: tuple[str, ...] = ()
_HISTORY = ("CHANGELOG.md",)


class Finding(NamedTuple):
    """A banned word: the file, its line from 1, the word, and what to write instead."""

    path: str
    line: int
    word: str
    instead: str


def findings(root: Path, words: Mapping[str, str], exempt: Mapping[str, list[str]]) -> Iterator[Finding]:
    """Yield the banned words in the tracked text files below a folder.

    Args:
        root: The repository.
        words: What to write instead, by the pattern of the banned words.
        exempt: Lines that are kept as they are, by path.
    """
    listed = subprocess.run(
        ["git", "ls-files", "--", *PATTERNS], cwd=root, check=True, capture_output=True, text=True
    ).stdout.split()
    patterns = [(re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", re.IGNORECASE), words[pattern]) for pattern in words]
    for name in listed:
        if name == LIST or name.startswith(NOT_YET_REWRITTEN + _HISTORY) or not (root / name).is_file():
            continue
        kept = {line.strip() for line in exempt.get(name, ())}
        for number, line in enumerate((root / name).read_text(encoding="utf-8").splitlines(), 1):
            if line.strip() in kept:
                continue
            for pattern, instead in patterns:
                for match in pattern.finditer(line):
                    yield Finding(name, number, match[0], instead)


def main() -> int:
    """Print the banned words.

    Returns:
        The exit status: 1 if there are any.
    """
    root = Path(__file__).resolve().parents[2]
    rules = tomllib.loads((root / LIST).read_text(encoding="utf-8"))
    found = list(findings(root, rules["words"], rules["exempt"]))
    for path, line, word, instead in found:
        print(f'{path}:{line}: "{word}": write {instead}')
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
