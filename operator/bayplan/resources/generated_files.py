"""Files that are made from the code and committed.

Owns how they are written, and how a committed one that differs is told. It must not know what is in them. Why a check
beside the writing: somebody changes the code and forgets the files, or edits a file that the next writing undoes.
"""

import difflib
import sys
from collections.abc import Mapping
from pathlib import Path


def write_files(files: Mapping[Path, str]) -> None:
    """Write files, and the directories in which they stand.

    Args:
        files: The whole text of each.
    """
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def have_drifted(files: Mapping[Path, str], source: str) -> bool:
    """Whether files are not what they should be; the differences are printed.

    Args:
        files: The text that each should have.
        source: What the text is made from, such as ``as the code says``.
    """
    drifted = False
    for path, text in files.items():
        committed = path.read_text(encoding="utf-8") if path.exists() else ""
        if committed != text:
            drifted = True
            lines = (committed.splitlines(keepends=True), text.splitlines(keepends=True))
            sys.stdout.writelines(difflib.unified_diff(*lines, str(path), source))
    return drifted
