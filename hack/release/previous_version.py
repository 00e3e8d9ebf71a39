"""The version before this one, from the repository's history: its chart with the definitions, and its code.

It is that of the last tag before the checked-out commit. There is no tag yet, so it is the last commit whose chart had
the definitions in ``crds/``, which Helm does not upgrade.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_MOVED = "charts/bayplan/definitions"
_PARTS = ("charts", "crds", "operator", "scheduler_core")


class NoPreviousVersionError(Exception):
    """Raised in a shallow clone and in a source archive, which lack the history."""


def previous_version(directory: Path) -> Path:
    """Write the sources of the previous version to a directory, and return it.

    Raises:
        NoPreviousVersionError: The checkout has no history; a clone with history never raises it.
    """
    reference = _reference()
    if _git("rev-parse", "--verify", "--quiet", f"{reference}^{{commit}}").returncode != 0:
        raise NoPreviousVersionError(
            "the checkout has no history before this version; run `git fetch --unshallow --tags`"
        )
    archive = _git("archive", "--format=tar", reference, *_PARTS)
    archive.check_returncode()
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(directory, filter="data")
    return directory


def _reference() -> str:
    """Return the last tag of a version before HEAD, or the commit before the definitions moved."""
    described = _git("describe", "--tags", "--abbrev=0", "--match=v[0-9]*", "HEAD^")
    if described.returncode == 0:
        return described.stdout.decode().strip()
    moved = _git("log", "--diff-filter=A", "--format=%H", "--max-count=1", "HEAD", "--", _MOVED)
    return f"{moved.stdout.decode().strip()}^"


def _git(*args: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["git", *args], cwd=_ROOT, capture_output=True, check=False)
    except OSError as error:
        return subprocess.CompletedProcess(args, 127, b"", str(error).encode())
