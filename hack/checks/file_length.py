"""Checks that no source file is longer than 800 lines."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

LIMIT = 800
FOLDERS = ("scheduler_core", "operator", "hack", "tests", "examples", "benchmarks")


def tracked(root: Path, patterns: Sequence[str]) -> list[str]:
    """Return the files of a repository that git tracks or would track, below its root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.splitlines()


def too_long(root: Path) -> list[tuple[Path, int]]:
    """Return the Python files over the limit, below the root, and their lines, longest first."""
    lengths = [
        (Path(name), len((root / name).read_text(encoding="utf-8").splitlines()))
        for name in tracked(root, FOLDERS)
        if name.endswith(".py") and (root / name).exists()
    ]
    return sorted((entry for entry in lengths if entry[1] > LIMIT), key=lambda entry: -entry[1])


def main() -> int:
    """Print the files that are too long."""
    found = too_long(Path(__file__).resolve().parents[2])
    for path, lines in found:
        print(f"{path}: {lines} lines, the limit is {LIMIT}; split it by topic")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
