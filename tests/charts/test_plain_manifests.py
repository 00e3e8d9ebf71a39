"""The chart as plain manifests and as a Kustomize base, accepted by a real API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.controlplane.api_client import ApiClient
from hack.controlplane.launcher import ControlPlane
from hack.release.manifests import NAMESPACE, files, render
from tests.charts.conftest import CHART, Helm

pytestmark = pytest.mark.cluster

_OVERLAY = """\
resources: [../base]
namespace: elsewhere
images:
  - name: bayplan
    newName: registry.example/bayplan
    newTag: "1"
"""


@pytest.fixture
def base(helm: Helm, tmp_path: Path) -> Path:
    """Write the base."""
    directory = tmp_path / "base"
    directory.mkdir()
    for name, text in files(render(helm.program, CHART)).items():
        (directory / name).write_text(text)
    return directory


def test_the_api_server_accepts_the_base(chart_plane: ControlPlane, base: Path) -> None:
    """Every object of the base can be applied, and none has a mark of Helm."""
    built = chart_plane.kubectl("kustomize", str(base))
    assert "helm" not in built.lower()
    objects = _objects(built)
    assert {"Namespace", "CustomResourceDefinition", "Deployment", "SchedulerProfile"} <= {kind for kind, _ in objects}
    assert "Pod" not in {kind for kind, _ in objects}, "the pod of `helm test`"
    with ApiClient(chart_plane) as api:
        for (kind, name), one in objects.items():
            if one["metadata"].get("namespace") != NAMESPACE:
                applied = api.would_apply(one)
                assert (applied["kind"], applied["metadata"]["name"]) == (kind, name)


def test_an_overlay_changes_image_and_namespace(chart_plane: ControlPlane, base: Path) -> None:
    """An overlay replaces the image and the namespace, also that of the bindings' service account."""
    overlay = base.with_name("overlay")
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text(_OVERLAY)
    objects = _objects(chart_plane.kubectl("kustomize", str(overlay)))
    deployment = objects["Deployment", "bayplan"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/bayplan:1"
    assert deployment["metadata"]["namespace"] == "elsewhere"
    (binding,) = [one for (kind, _), one in objects.items() if kind == "ClusterRoleBinding"]
    assert binding["subjects"][0]["namespace"] == "elsewhere"


def test_rejected_values_are_reported(helm: Helm, tmp_path: Path) -> None:
    """Values that the chart rejects are an error with the chart's message."""
    values = tmp_path / "values.yaml"
    values.write_text("clusterSize: huge\n")
    with pytest.raises(RuntimeError, match="clusterSize"):
        render(helm.program, CHART, values)


def _objects(text: str) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text) if one}
