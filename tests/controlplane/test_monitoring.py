"""The Prometheus operator's CRDs are read from the cache or downloaded with Go."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.controlplane import monitoring
from hack.controlplane.binaries import MissingBinary
from tests.support.tables import table


def _fake_go(directory: Path, text: str) -> None:
    program = directory / "go"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    program.chmod(0o755)


def test_the_cache_needs_no_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cached copy is found without Go."""
    directory = tmp_path / "bayplan" / "controlplane" / "prometheus-operator-v0.85.0"
    directory.mkdir(parents=True)
    for name in monitoring.DEFINITIONS:
        (directory / name).write_text("kind: CustomResourceDefinition\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    assert monitoring.definitions() == directory


def test_without_go_the_error_has_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a cached copy and Go, the error names the remedy."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingBinary, match=r"go is not on PATH\nInstall Go"):
        monitoring.definitions()


@table(
    "output, reason",
    ("proxy unreachable", '{"Error": "no such host"}', "failed: no such host"),
    ("other content", '{"Dir": "/nonexistent", "Sum": "h1:other"}', "has the hash h1:other"),
)
def test_a_failed_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, reason: str) -> None:
    """A failed download, or one with another hash, is an error."""
    programs = tmp_path / "bin"
    programs.mkdir()
    _fake_go(programs, output)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    with pytest.raises(MissingBinary, match=reason):
        monitoring.definitions()
