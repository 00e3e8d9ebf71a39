"""Generated files that are committed, and the check that they are up to date."""

import difflib
import sys
from collections.abc import Mapping
from pathlib import Path


def write_files(files: Mapping[Path, str]) -> None:
    """Write files and their directories.

    Args:
        files: The text of each file.
    """
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def have_drifted(files: Mapping[Path, str], source: str) -> bool:
    """Return whether committed files differ from the generated ones; print the differences.

    Args:
        files: The generated text of each file.
        source: Name of the generated side in the diff.
    """
    drifted = False
    for path, text in files.items():
        committed = path.read_text(encoding="utf-8") if path.exists() else ""
        if committed != text:
            drifted = True
            lines = (committed.splitlines(keepends=True), text.splitlines(keepends=True))
            sys.stdout.writelines(difflib.unified_diff(*lines, str(path), source))
    return drifted
