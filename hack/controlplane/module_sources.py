"""Sources of the Go modules that a pinned module requires: downloaded, and copied with changes for a build.

Go neither lets an overlay replace a file of its module cache nor builds a changed copy without a `replace` line.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_DOWNLOAD_SECONDS = 600.0
_COPY = "source"


class ModuleSourceError(Exception):
    """The source of a module cannot be downloaded, or is not what a change expects."""


@dataclass(frozen=True, slots=True)
class SourceEdit:
    """Replacement of each occurrence of a text in one file of a module."""

    file: str
    old: str
    new: str
    count: int = 1


def go_environment(mode: str = "readonly") -> Mapping[str, str]:
    """Return the environment of a pinned build, without GOWORK and GOFLAGS of the user's projects."""
    return os.environ | {"CGO_ENABLED": "0", "GOFLAGS": f"-mod={mode}", "GOWORK": "off"}


def source_of(module: str, requiring: Path) -> Path:
    """Return the directory of a module in Go's cache; raises as :func:`download` does.

    Args:
        module: Path of the module, without a version.
        requiring: Directory of the module that requires it; its `go.sum` verifies the download.
    """
    return Path(download(module, requiring, go_environment())["Dir"])


def download(module: str, directory: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Download a module into Go's cache, and return what Go reports of it: ``Dir``, ``Sum`` and more.

    Args:
        module: Path of the module, with a version unless the module in *directory* requires it.

    Raises:
        ModuleSourceError: Go is missing, or the download failed.
    """
    if shutil.which("go") is None:
        raise ModuleSourceError("go is not on PATH")
    command = ["go", "mod", "download", "-json", module]
    outcome = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_DOWNLOAD_SECONDS,
        check=False,
    )
    found: dict[str, str] = json.loads(outcome.stdout or "{}")
    if outcome.returncode or "Dir" not in found:
        raise ModuleSourceError(f"`{' '.join(command)}` failed: {found.get('Error') or outcome.stderr.strip()}")
    return found


def prepare_edited(module: str, requiring: Path, edits: Sequence[SourceEdit], directory: Path) -> None:
    """Copy a Go module to an empty directory, with a changed copy of a module that it requires.

    Raises:
        ModuleSourceError: The source cannot be downloaded, or does not contain what an edit replaces.
    """
    source, copy = source_of(module, requiring), directory / _COPY
    # Files of Go's cache are read-only; the copies are the user's own.
    shutil.copytree(source, copy, copy_function=shutil.copyfile)
    for each in edits:
        file = copy / each.file
        text = file.read_text()
        if text.count(each.old) != each.count:
            raise ModuleSourceError(f"{module}: {each.file} contains {each.old!r} not {each.count} times")
        file.write_text(text.replace(each.old, each.new))
    for name in ("go.mod", "go.sum"):
        shutil.copyfile(requiring / name, directory / name)
    command = ["go", "mod", "edit", f"-replace={module}=./{_COPY}"]
    outcome = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if outcome.returncode:
        raise ModuleSourceError(f"`{' '.join(command)}` failed: {outcome.stderr.strip()}")
