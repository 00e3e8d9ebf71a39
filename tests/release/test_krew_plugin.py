"""The plugin of kubectl for krew: its manifest obeys krew's rules, and its launcher runs the command."""

from __future__ import annotations

import hashlib
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.image.image_build import Provenance
from hack.release.__main__ import write_krew_plugin
from tests.support.tables import table

ORIGIN = Provenance("0.1.0", "0" * 40, 1_700_000_000, "")
ARCHITECTURES = ("amd64", "arm64")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build archive and manifest."""
    directory = tmp_path_factory.mktemp("krew")
    write_krew_plugin(ORIGIN, directory)
    return directory


def only(directory: Path, pattern: str) -> Path:
    (found,) = directory.glob(pattern)
    return found


def test_the_manifest_is_valid(built: Path) -> None:
    """The manifest obeys the rules of krew v0.5's validation (``internal/index/validation``) and of its index."""
    document: dict[str, Any] = yaml.safe_load(only(built, "*.krew.yaml").read_text())
    assert (document["apiVersion"], document["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert re.fullmatch(r"[\w-]+", document["metadata"]["name"])
    spec = document["spec"]
    assert re.fullmatch(r"v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?", spec["version"])
    assert 0 < len(spec["shortDescription"]) <= 50
    assert not re.search(r"[\r\n]|kubectl|\.$", spec["shortDescription"])
    assert spec["homepage"].startswith("https://")
    assert spec["description"]
    matched = [
        (system, architecture)
        for system in ("linux", "darwin", "windows")
        for architecture in ARCHITECTURES
        for platform in spec["platforms"]
        if all(
            {"os": system, "arch": architecture}[key] == value
            for key, value in platform["selector"]["matchLabels"].items()
        )
    ]
    assert sorted(matched) == [(system, each) for system in ("darwin", "linux") for each in ARCHITECTURES]
    archive = only(built, "*.tar.gz")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    for platform in spec["platforms"]:
        assert platform["uri"] == f"https://bayplan.dev/releases/v0.1.0/{archive.name}"
        assert platform["sha256"] == digest
        copied = {each["from"] for each in platform["files"] if each["to"] == "."}
        assert {platform["bin"], "LICENSE"} <= copied
        with tarfile.open(archive) as packed:
            assert copied <= set(packed.getnames())
            assert packed.getmember(platform["bin"]).mode == 0o755


def test_a_second_build_has_the_same_bytes(built: Path, tmp_path: Path) -> None:
    """Archive and manifest depend on the commit alone."""
    write_krew_plugin(ORIGIN, tmp_path)
    first, second = ({path.name: path.read_bytes() for path in each.iterdir()} for each in (built, tmp_path))
    assert first == second


@table(
    "commands, code, output",
    ("installed", ("bayplan", "uvx"), 0, "bayplan: explain -n shop web"),
    ("uvx", ("uvx", "pipx"), 0, "uvx: --from bayplan==0.1.0 bayplan explain -n shop web"),
    ("pipx", ("pipx",), 0, "pipx: run --spec bayplan==0.1.0 bayplan explain -n shop web"),
    ("none", (), 127, "kubectl bayplan: there is no bayplan, uvx or pipx in PATH"),
)
def test_the_launcher_runs_the_command(
    built: Path, tmp_path: Path, commands: tuple[str, ...], code: int, output: str
) -> None:
    """The launcher runs the first command that exists, with all arguments."""
    with tarfile.open(only(built, "*.tar.gz")) as packed:
        packed.extractall(tmp_path, filter="data")
    directory = tmp_path / "bin"
    directory.mkdir()
    for command in commands:
        (directory / command).write_text(f'#!/bin/sh\necho "{command}: $*"\n')
        (directory / command).chmod(0o755)
    done = subprocess.run(
        [str(tmp_path / "kubectl-bayplan"), "explain", "-n", "shop", "web"],
        env={"PATH": str(directory)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert (done.stdout + done.stderr).startswith(output)
