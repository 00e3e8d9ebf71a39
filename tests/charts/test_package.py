"""The chart as a package: lint, content and notes, with Helm 3 and 4."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import yaml
from bayplan.resources.crd_generation import RESOURCES, definition_of
from bayplan.resources.resource_model import VERSION

from tests.charts.conftest import CHART, ROOT, Helm
from tests.charts.value_sets import MONITORING, PLAIN, SINGLE
from tests.support.tables import table

_TOP = {".helmignore", "Chart.yaml", "README.md", "values.yaml", "values.schema.json"}
_FOLDERS = {"alerts", "dashboards", "definitions", "templates"}


@table("given", ("defaults", {}), ("all objects", MONITORING | {"networkPolicy": {"enabled": True}}))
def test_the_chart_is_clean(each_helm: Helm, given: dict[str, Any]) -> None:
    """`helm lint --strict` passes, also with every object rendered."""
    file = each_helm.home / "lint.yaml"
    file.write_text(yaml.safe_dump(given))
    answer = each_helm.run("lint", "--strict", f"--values={file}", str(CHART))
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_the_packaged_chart_carries_the_definitions(each_helm: Helm, tmp_path: Path) -> None:
    """The CRDs of the package equal those of ``crds/``, to which the chart has a link."""
    package = _packaged(each_helm, tmp_path)
    rendered = yaml.safe_load_all(each_helm.run("template", "release", str(package)).stdout)
    carried = {_name(one): one["spec"] for one in rendered if one and one["kind"] == "CustomResourceDefinition"}
    generated = [yaml.safe_load(path.read_text()) for path in (ROOT / "crds").glob("*.yaml")]
    assert carried == {_name(one): one["spec"] for one in generated}


def test_the_annotations_name_the_definitions() -> None:
    """Artifact Hub shows every definition, and an example of each that the models accept."""
    annotations = yaml.safe_load((CHART / "Chart.yaml").read_text())["annotations"]
    listed = yaml.safe_load(annotations["artifacthub.io/crds"])
    definitions = {definition_of(resource)["metadata"]["name"]: resource for resource in RESOURCES}
    assert {one["name"]: (one["kind"], one["version"]) for one in listed} == {
        name: (resource.definition.kind, VERSION) for name, resource in definitions.items()
    }
    examples = yaml.safe_load(annotations["artifacthub.io/crdsExamples"])
    kinds = {resource.definition.kind: resource for resource in RESOURCES}
    assert {kinds[one["kind"]].from_object(one).metadata.name for one in examples} == {
        "bin-packing",
        "consolidate",
        "most-allocated",
        "training",
    }


def test_the_packaged_chart_carries_nothing_else(each_helm: Helm, tmp_path: Path) -> None:
    """Files that an editor or a package leaves in the directory are not packaged."""
    with tarfile.open(_packaged(each_helm, tmp_path)) as package:
        names = [Path(name).relative_to("bayplan") for name in package.getnames()]
    assert {str(name) for name in names if len(name.parts) == 1} == _TOP
    assert {name.parts[0] for name in names if len(name.parts) > 1} <= _FOLDERS
    suffixes = {
        "alerts": {".yaml"},
        "definitions": {".yaml"},
        "dashboards": {".json"},
        "templates": {".yaml", ".tpl", ".txt"},
    }
    assert [name for name in names if len(name.parts) > 1 and name.suffix not in suffixes[name.parts[0]]] == []


def test_the_packaged_chart_renders(each_helm: Helm, tmp_path: Path) -> None:
    """Alerts and dashboards are rendered from the package as from the directory."""
    package = _packaged(each_helm, tmp_path)
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(MONITORING))
    command = ("template", "release", str(package), f"--values={file}")
    objects = [one for one in yaml.safe_load_all(each_helm.run(*command).stdout) if one]
    assert [one["kind"] for one in objects].count("PrometheusRule") == 1
    dashboards = {path.name: json.loads(path.read_text()) for path in (CHART / "dashboards").glob("*.json")}
    rendered = [one for one in objects if one["metadata"]["name"].endswith("-dashboards")]
    assert len(rendered) == bool(dashboards)
    for one in rendered:
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert {name: json.loads(text) for name, text in one["data"].items()} == dashboards


def test_every_alert_has_a_remedy() -> None:
    """An alert has a severity, a summary line and a description for the person who is alerted."""
    names = set()
    for path in (CHART / "alerts").glob("*.yaml"):
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                assert 'job="bayplan"' in rule["expr"]
                if "record" in rule:
                    continue
                names.add(rule["alert"])
                assert rule["labels"]["severity"] in {"critical", "warning", "info"}, rule["alert"]
                assert len(rule["annotations"]["summary"]) < 80, rule["alert"]
                assert len(rule["annotations"]["description"]) > 80, rule["alert"]
    assert len(names) > 5


@table(
    "given, present, absent",
    (
        "defaults",
        {},
        ["2 replicas", "schedulerName: bayplan", "helm test release", "get lease bayplan", "--operator ns/release"],
        ["replicaCount is 0", "rbac.create", "kind: SchedulerProfile"],
    ),
    ("no leader election", SINGLE, ["One process runs at a time", "--operator ns/release"], ["get lease"]),
    ("stopped", {"replicaCount": 0}, ["replicaCount is 0: nothing is scheduled"], []),
    ("no profile", {"defaultProfile": {"enabled": False}}, ["kind: SchedulerProfile"], ["The chart installed"]),
    ("no rights", {"rbac": {"create": False}}, ["rbac.create is false: grant release-bayplan"], []),
    ("no Service", {"service": {"create": False}}, ["--operator ns/release"], []),
    ("serves nothing", {"settings": {"serveAddress": ""}}, ["no probes"], ["--operator"]),
    (
        "monitoring",
        MONITORING,
        ["a ServiceMonitor and a PrometheusRule", "--clusterrole=ns:release-bayplan-metrics-reader"],
        [],
    ),
    ("monitoring over HTTP", MONITORING | {"settings": PLAIN}, ["a ServiceMonitor"], ["clusterrolebinding"]),
    (
        "another name",
        {"defaultProfile": {"name": "batch", "spec": {"schedulerName": "night"}}},
        ["schedulerName: night"],
        [],
    ),
)
def test_the_notes_match_the_release(
    helm: Helm, tmp_path: Path, given: dict[str, Any], present: list[str], absent: list[str]
) -> None:
    """The notes match the installed objects; only Helm 4, because Helm 3 prints notes only with a cluster."""
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(given))
    command = ("install", "release", str(CHART), f"--values={file}", "--dry-run=client", "--namespace=ns")
    answer = helm.run(*command, kubeconfig=tmp_path / "none")
    assert answer.returncode == 0, answer.stderr
    notes = answer.stdout[answer.stdout.index("NOTES:") :]
    assert [text for text in present if text not in notes] == []
    assert [text for text in absent if text in notes] == []


def _packaged(helm: Helm, directory: Path) -> Path:
    answer = helm.run("package", str(CHART), f"--destination={directory}")
    assert answer.returncode == 0, answer.stderr
    (package,) = directory.glob("*.tgz")
    return package


def _name(document: dict[str, Any]) -> str:
    return str(document["metadata"]["name"])
