"""Selection of a container engine, and the errors without one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hack.image import debian_base
from hack.image.engines import ImageError, choose, discard
from hack.image.image_build import Provenance, build, provenance
from tests.support.tables import table


def _program(directory: Path, name: str, script: str) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@table(
    "programs, expected",
    ("all", {"docker": "exit 0", "podman": "exit 0", "buildah": "exit 0"}, "docker"),
    ("docker without a daemon", {"docker": "exit 1", "podman": "exit 0"}, "podman"),
    ("only buildah", {"buildah": "exit 0"}, "buildah"),
)
def test_an_engine_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: dict[str, str], expected: str
) -> None:
    """The first engine that works is selected."""
    for name, script in programs.items():
        _program(tmp_path, name, script)
    monkeypatch.setenv("PATH", str(tmp_path))
    engine = choose(storage=tmp_path / "storage")
    discard(engine)
    assert engine.name == expected


def test_layers_are_cached_only_with_overlay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without overlay no layers are cached, because each would be a copy of the whole file system."""
    _program(tmp_path, "podman", 'case "$*" in *overlay*) exit 1;; esac')
    monkeypatch.setenv("PATH", str(tmp_path))
    engine = choose("podman", tmp_path / "storage")
    discard(engine)
    assert "--storage-driver=vfs" in engine.storage
    assert "--layers=false" in engine.build_command(cached=True)


@table("name", ("any", None), ("docker", "docker"))
def test_a_missing_engine_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str | None) -> None:
    """Without an engine the error names the packages to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageError, match="apt-get install podman buildah runc debootstrap"):
        choose(name, tmp_path / "storage")


def test_the_output_of_an_engine_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a failed command has the command and its output."""
    _program(tmp_path, "podman", 'case "$*" in *info*) ;; *) echo no space left >&2; exit 125;; esac')
    monkeypatch.setenv("PATH", str(tmp_path))
    engine = choose("podman", tmp_path / "storage")
    discard(engine)
    with pytest.raises(ImageError, match=r"(?s)`podman save .*no space left"):
        engine.save("bayplan", tmp_path / "archive.tar")


def test_a_base_needs_debootstrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a registry and debootstrap the error names both remedies."""
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(ImageError, match=r"apt-get install debootstrap.* set BASE_IMAGE"):
        debian_base.base_archive(tmp_path)


def test_source_date_epoch_is_used() -> None:
    """`SOURCE_DATE_EPOCH` is the time of the image."""
    assert provenance({"SOURCE_DATE_EPOCH": "86400"}).created == "1970-01-02T00:00:00Z"


def test_source_date_epoch_must_be_a_number() -> None:
    """Another value is rejected with the expected format."""
    with pytest.raises(ImageError, match="whole seconds since 1970"):
        provenance({"SOURCE_DATE_EPOCH": "today"})


def test_a_label_without_its_variable_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Dockerfile without a placeholder for the origin is not built, and the error names the placeholder."""
    _program(tmp_path, "podman", "exit 0")
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("BASE_IMAGE", "given")
    engine = choose("podman", tmp_path / "storage")
    try:
        with pytest.raises(ImageError, match=r"no \$\{VERSION\}: add it to the label"):
            build(engine, "bayplan", Provenance("0.1.0", "unknown", 0, ""), context=tmp_path)
    finally:
        discard(engine)
