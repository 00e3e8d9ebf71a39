"""The version of the package comes from the tag of the commit, and stays in sources without git."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from hack.image.image_build import Provenance
from tests.support.tables import table

ROOT = Path(__file__).resolve().parents[2]
_FILES = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", ".git_archival.txt", ".gitattributes")
_IDENTITY = ("-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a checkout of one commit with this repository's configuration of the build."""
    directory = tmp_path / "checkout"
    for package in ("scheduler_core", "operator/bayplan", "crds"):
        (directory / package).mkdir(parents=True)
        (directory / package / "__init__.py").touch()
    for name in _FILES:
        shutil.copy(ROOT / name, directory / name)
    _git(directory, "init", "--quiet")
    _commit(directory)
    return directory


@table(
    "tags, later, version",
    ("no tag", (), 0, "0.0.0.dev1+g{commit}"),
    ("tag", ("v0.2.0",), 0, "0.2.0"),
    ("commits after the tag", ("v0.2.0",), 2, "0.2.1.dev2+g{commit}"),
    ("tags of other kinds", ("v0.2.0", "demo-3", "3.0.0"), 0, "0.2.0"),
)
def test_the_tag_gives_the_version(checkout: Path, tags: tuple[str, ...], later: int, version: str) -> None:
    """A tagged commit has its version, and each later commit a development version with the commit in it."""
    for tag in tags:
        _git(checkout, "tag", tag)
    for _ in range(later):
        _commit(checkout)
    given, _, commit = _version(checkout).partition("+g")
    assert _git(checkout, "rev-parse", "HEAD").startswith(commit)
    assert f"{given}+g{commit}" if commit else given == version.format(commit=commit)


def test_a_changed_checkout_is_no_release(checkout: Path) -> None:
    """A tagged commit with changes has a development version."""
    _git(checkout, "tag", "v0.2.0")
    (checkout / "README.md").write_text("changed")
    assert _version(checkout).startswith("0.2.1.dev0+")


@table("later", ("release", 0), ("development", 1))
@pytest.mark.parametrize("kind", ["source distribution", "git archive"])
def test_sources_without_git_keep_the_version(checkout: Path, tmp_path: Path, kind: str, later: int) -> None:
    """The source distribution and an archive of the repository have the version of their commit."""
    _git(checkout, "tag", "v0.2.0")
    for _ in range(later):
        _commit(checkout)
    version = _version(checkout)
    archive = tmp_path / "sources.tar.gz"
    if kind == "git archive":
        _git(checkout, "archive", "--prefix=sources/", f"--output={archive}", "HEAD")
    else:
        _hatchling(checkout, "build", "--target=sdist", f"--directory={tmp_path}")
        (built,) = tmp_path.glob("bayplan-*.tar.gz")
        built.rename(archive)
    with tarfile.open(archive) as files:
        files.extractall(tmp_path / "extracted", filter="data")
    (sources,) = (tmp_path / "extracted").iterdir()
    assert _version(sources) == version


def test_other_sources_have_the_fallback(checkout: Path) -> None:
    """Sources without git and metadata, such as the context of an image, have the lowest version."""
    shutil.rmtree(checkout / ".git")
    (checkout / ".git_archival.txt").unlink()
    assert _version(checkout) == "0.0.0.dev0"


@table(
    "version, semantic, tag",
    ("release", "1.2.3", "1.2.3", "1.2.3"),
    ("development", "1.2.4.dev5+g1a2b", "1.2.4-dev.5+g1a2b", "1.2.4.dev5_g1a2b"),
    ("fallback", "0.0.0.dev0", "0.0.0-dev.0", "0.0.0.dev0"),
)
def test_each_place_has_the_version_in_its_form(version: str, semantic: str, tag: str) -> None:
    """Helm and krew need a semantic version, and a tag of an image has no plus sign."""
    origin = Provenance(version, "unknown", 0, "")
    assert (origin.semantic_version, origin.image_tag) == (semantic, tag)


def _version(directory: Path) -> str:
    return _hatchling(directory, "metadata", "version")


def _hatchling(directory: Path, *arguments: str) -> str:
    return _run([sys.executable, "-m", "hatchling", *arguments], directory)


def _commit(directory: Path) -> None:
    _git(directory, "add", "--all")
    _git(directory, *_IDENTITY, "commit", "--quiet", "--allow-empty", "--message=change")


def _git(directory: Path, *arguments: str) -> str:
    return _run(["git", *arguments], directory)


def _run(command: list[str], directory: Path) -> str:
    # Not this repository, if the test runs in a hook of git, and no version from outside.
    ignored = ("GIT_", "SETUPTOOLS_SCM_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ignored)}
    answer = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()
