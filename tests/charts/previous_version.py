"""The version before this one, from the repository's history: its chart with the definitions, and its code.

It is that of the last tag before the checked-out commit. There is no tag yet, so it is a fixed commit: the last one
whose chart had the definitions in ``crds/``, which Helm does not upgrade.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_FIRST = "c2467fa4373584b4b9062f860e4e7ea96fea974d"
_PARTS = ("charts", "crds", "operator", "scheduler_core")


def previous_version(directory: Path) -> Path:
    """Write the sources of the previous version to a directory, and return it.

    A clone without history lacks them: the test is skipped then, and fails in CI.
    """
    archive = _git("archive", "--format=tar", _reference(), *_PARTS)
    if archive.returncode != 0:
        problem = "the history of the repository lacks the previous version; run `git fetch --unshallow --tags`"
        if os.environ.get("CI"):
            pytest.fail(problem, pytrace=False)
        pytest.skip(problem)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(directory, filter="data")
    return directory


def _reference() -> str:
    """Return the last tag of a version before HEAD, or the first previous version."""
    described = _git("describe", "--tags", "--abbrev=0", "--match=v[0-9]*", "HEAD^")
    return described.stdout.decode().strip() if described.returncode == 0 else _FIRST


def _git(*args: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["git", *args], cwd=_ROOT, capture_output=True, check=False)
    except OSError as error:
        return subprocess.CompletedProcess(args, 127, b"", str(error).encode())
