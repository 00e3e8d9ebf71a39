"""The chart's archive of a release: the same bytes in each build, read by Helm 3 and 4, complete as an OCI layout."""

from __future__ import annotations

import hashlib
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from hack.image.image_build import Provenance
from hack.release.chart_package import packaged, write_oci_layout
from hack.release.locked_dependencies import ReleaseError
from tests.charts.conftest import CHART, Helm

ORIGIN = Provenance("0.1.0", "0" * 40, 1_700_000_000, "")


def test_a_second_build_has_the_same_bytes() -> None:
    """Two builds of one commit are equal, and a build of another commit has another time only."""
    assert packaged(ORIGIN) == packaged(ORIGIN)
    assert packaged(ORIGIN) != packaged(replace(ORIGIN, epoch=1_700_000_001))


def test_helm_reads_the_archive(each_helm: Helm, tmp_path: Path) -> None:
    """The archive has the files of Helm's own package, and renders the same objects."""
    archive = tmp_path / "chart.tgz"
    archive.write_bytes(packaged(ORIGIN))
    own = tmp_path / "own"
    assert each_helm.run("package", str(CHART), f"--destination={own}").returncode == 0
    (expected,) = own.iterdir()
    with tarfile.open(archive) as ours, tarfile.open(expected) as theirs:
        assert sorted(ours.getnames()) == sorted(theirs.getnames())
    rendered = [each_helm.run("template", "release", str(path)).stdout for path in (archive, expected)]
    assert list(yaml.safe_load_all(rendered[0])) == list(yaml.safe_load_all(rendered[1]))
    assert "kind: Deployment" in rendered[0]


def test_the_oci_layout_is_complete(tmp_path: Path) -> None:
    """Every blob has the digest and size by which it is named, and the layer is the chart."""
    chart = packaged(ORIGIN)
    digest = write_oci_layout(chart, ORIGIN, tmp_path)
    (named,) = json.loads((tmp_path / "index.json").read_bytes())["manifests"]
    assert named["digest"] == digest
    manifest = json.loads(_blob(tmp_path, named))
    assert json.loads(_blob(tmp_path, manifest["config"]))["name"] == "bayplan"
    assert [_blob(tmp_path, layer) for layer in manifest["layers"]] == [chart]


def test_another_version_of_the_chart_stops_the_release() -> None:
    """A chart whose version is not that of the package is not packaged."""
    with pytest.raises(ReleaseError, match=r"Chart\.yaml: version is 0\.1\.0, not 0\.2\.0"):
        packaged(replace(ORIGIN, version="0.2.0"))


def _blob(directory: Path, described: dict[str, object]) -> bytes:
    content = (directory / "blobs" / "sha256" / str(described["digest"]).removeprefix("sha256:")).read_bytes()
    assert (described["digest"], described["size"]) == (f"sha256:{hashlib.sha256(content).hexdigest()}", len(content))
    return content
