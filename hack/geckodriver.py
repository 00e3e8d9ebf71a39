"""Finds or builds geckodriver, by which tests drive Firefox: ``python -m hack.geckodriver``.

Debian has Firefox and no geckodriver. It is built from crates.io, once, into the per-user cache, with the dependencies
that its lock file pins.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from hack.controlplane.binaries import user_cache

VERSION = "0.37.1"
_BUILD_SECONDS = 3600.0


class MissingGeckodriver(Exception):  # noqa: N818 - names the problem, as FileNotFoundError does
    """geckodriver can neither be found nor built here."""


def geckodriver() -> Path:
    """Return the path of geckodriver: the one on PATH, else that of the cache, which is built the first time.

    Raises:
        MissingGeckodriver: Cargo is missing, or the build fails.
    """
    installed = shutil.which("geckodriver")
    if installed is not None:
        return Path(installed)
    base = user_cache()
    directory = base / f"geckodriver-{VERSION}"
    program = directory / "geckodriver"
    if not program.is_file():
        base.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".geckodriver-", dir=base) as scratch:
            built = _build(Path(scratch))
            directory.mkdir(exist_ok=True)
            built.replace(program)
    return program


def _build(directory: Path) -> Path:
    """Build it with Cargo; return the program."""
    if shutil.which("cargo") is None:
        raise MissingGeckodriver("cargo is not on PATH; install Rust (https://rustup.rs), or geckodriver")
    sys.stderr.write(f"geckodriver: building version {VERSION}, once; this takes minutes\n")
    command = ["cargo", "install", "--quiet", "--locked", f"--version={VERSION}", f"--root={directory}", "geckodriver"]
    environment = os.environ | {"CARGO_TARGET_DIR": str(directory / "target")}
    answer = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False
    )
    if answer.returncode != 0:
        raise MissingGeckodriver(f"`{' '.join(command)}` failed: {answer.stderr.strip()}")
    return directory / "bin" / "geckodriver"


if __name__ == "__main__":
    try:
        print(geckodriver())
    except MissingGeckodriver as problem:
        sys.exit(f"geckodriver: {problem}")
