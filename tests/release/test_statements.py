"""Statements about the files of a release, and the version that they name."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from hack.image.image_build import Provenance, pinned_base
from hack.release.__main__ import check_base, check_version
from hack.release.locked_dependencies import ReleaseError
from hack.release.statements import BUILD_TYPE, checksums, digest, provenance
from tests.support.tables import table

ROOT = Path(__file__).resolve().parents[2]
ORIGIN = Provenance("0.1.0", "a" * 40, 1_700_000_000, "https://git.example/bayplan")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Write two files."""
    for name in ("b.whl", "a.tgz"):
        (tmp_path / name).write_text(name)
    return list(tmp_path.iterdir())


def test_sha256sum_verifies_the_checksums(files: list[Path], tmp_path: Path) -> None:
    """`sha256sum --check` accepts the files, and rejects a changed one."""
    sums = tmp_path / "SHA256SUMS"
    sums.write_text(checksums(files, tmp_path))
    check = ("sha256sum", "--check", "--strict", "SHA256SUMS")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    (tmp_path / "a.tgz").write_text("changed")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, check=False).returncode == 1


def test_the_provenance_names_files_and_sources(files: list[Path], tmp_path: Path) -> None:
    """The statement has the digest of every file, the commit, and the digests of the locks."""
    statement = provenance(files, tmp_path, ORIGIN, pinned_base())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    assert statement["subject"] == [
        {"name": name, "digest": {"sha256": digest(tmp_path / name)}} for name in ("a.tgz", "b.whl")
    ]
    definition = statement["predicate"]["buildDefinition"]
    assert definition["buildType"] == BUILD_TYPE
    by_uri = {each["uri"]: each.get("digest") for each in definition["resolvedDependencies"]}
    assert by_uri["git+https://git.example/bayplan"] == {"gitCommit": "a" * 40}
    ((_, base),) = [item for item in by_uri.items() if item[0].startswith("oci:docker.io/library/python:")]
    assert re.fullmatch("[0-9a-f]{64}", base["sha256"])
    assert by_uri["file:uv.lock"] == {"sha256": digest(ROOT / "uv.lock")}


@table(
    "tag, revision, problem",
    ("development", "", "a" * 40, None),
    ("development with changes", "", "a-dirty", None),
    ("release", "v0.1.0", "a" * 40, None),
    ("two tags", "v0.2.0", "a" * 40, "the tag v0.2.0 gives the version 0.1.0"),
    ("release with changes", "v0.1.0", "a-dirty", "the checkout differs from v0.1.0"),
)
def test_the_tag_is_the_version(tag: str, revision: str, problem: str | None) -> None:
    """A release is built from an unchanged checkout whose tag is the version."""
    origin = Provenance("0.1.0", revision, 0, "")
    if problem is None:
        check_version(origin, tag)
        return
    with pytest.raises(ReleaseError, match=problem):
        check_version(origin, tag)


@table("base, named", ("no digest", "localhost/base:1", ["oci:localhost/base:1"]), ("no image", "", []))
def test_the_provenance_names_the_base_of_the_image(
    files: list[Path], tmp_path: Path, base: str, named: list[str]
) -> None:
    """A base without a digest is named as it is, and none without an image."""
    resolved = provenance(files, tmp_path, ORIGIN, base)["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert [each["uri"] for each in resolved if each["uri"].startswith("oci:")] == named


def test_a_release_has_the_pinned_base() -> None:
    """A release whose image was built on another base is refused; a development build is not."""
    for base, tag in (("", "v0.1.0"), (pinned_base(), "v0.1.0"), ("localhost/base:1", "")):
        check_base(base, tag)
    with pytest.raises(ReleaseError, match=r"the image was built on localhost/base:1, not on docker\.io"):
        check_base("localhost/base:1", "v0.1.0")


def test_a_checkout_has_one_tag_of_the_image() -> None:
    """The page about installation builds the image that the chart of a checkout runs."""
    chart = yaml.safe_load((ROOT / "charts" / "bayplan" / "Chart.yaml").read_text())
    pages = re.findall(r"registry\.example/bayplan:(\S+)", (ROOT / "docs" / "install.md").read_text())
    assert set(pages) == {chart["appVersion"]}


def test_sources_without_git_have_one_version() -> None:
    """`docker build` without arguments gives the version that the package has without git."""
    fallback = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["version"]["fallback-version"]
    dockerfile = re.findall(r"^ARG VERSION=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert dockerfile == [fallback, fallback]


def test_plugins_are_built_on_the_base_of_the_image() -> None:
    """An image with plugins has the Python of the image that it extends."""
    dockerfile = (ROOT / "examples" / "plugins" / "Dockerfile").read_text()
    assert f"ARG BASE_IMAGE={pinned_base()}\n" in dockerfile
