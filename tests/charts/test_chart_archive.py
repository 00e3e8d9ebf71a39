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
from hack.release import chart_package
from hack.release.chart_package import packaged, write_oci_layout
from hack.release.locked_dependencies import ReleaseError
from tests.charts.conftest import CHART, Helm
from tests.support.tables import table

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
    versions = ("--version=0.1.0", "--app-version=0.1.0")
    assert each_helm.run("package", str(CHART), f"--destination={own}", *versions).returncode == 0
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


@table(
    "version, chart_version, tag",
    ("release", "0.2.0", "0.2.0", "0.2.0"),
    ("development", "0.2.1.dev5+g1a2b", "0.2.1-dev.5+g1a2b", "0.2.1.dev5_g1a2b"),
)
def test_the_chart_has_the_version_of_the_package(
    each_helm: Helm, tmp_path: Path, version: str, chart_version: str, tag: str
) -> None:
    """Chart.yaml, the labels and the tag of the image have the version, each in the form that it allows."""
    archive, origin = tmp_path / "chart.tgz", replace(ORIGIN, version=version)
    archive.write_bytes(packaged(origin))
    metadata = yaml.safe_load(each_helm.run("show", "chart", str(archive)).stdout)
    assert (metadata["version"], metadata["appVersion"]) == (chart_version, version)
    rendered = yaml.safe_load_all(each_helm.run("template", "release", str(archive)).stdout)
    (deployment,) = [one for one in rendered if one and one["kind"] == "Deployment"]
    assert deployment["metadata"]["labels"]["app.kubernetes.io/version"] == tag == origin.image_tag
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"].partition(":")[2] == tag


def test_a_chart_without_placeholders_stops_the_release(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A chart whose version was written by hand is not packaged."""
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: bayplan\nversion: 0.2.0\nappVersion: dev\n")
    monkeypatch.setattr(chart_package, "CHART", tmp_path)
    with pytest.raises(ReleaseError, match=r"Chart\.yaml: there is no line 'version: 0\.0\.0-dev'"):
        packaged(ORIGIN)


def _blob(directory: Path, described: dict[str, object]) -> bytes:
    content = (directory / "blobs" / "sha256" / str(described["digest"]).removeprefix("sha256:")).read_bytes()
    assert (described["digest"], described["size"]) == (f"sha256:{hashlib.sha256(content).hexdigest()}", len(content))
    return content
