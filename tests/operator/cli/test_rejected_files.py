"""Tests of files that the API server would reject, and of what controllers add to objects of files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bayplan.cli import bayplan
from click.testing import CliRunner, Result

from tests.support.tables import table

NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: n}\nstatus: {capacity: {cpu: 4, memory: 8Gi, pods: 9}}\n"
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: x}]}\n"
CONFIGURATION = (
    "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{schedulerName: a}]\n"
)
PROFILE = "apiVersion: bayplan.dev/v1alpha1\nkind: SchedulerProfile\nmetadata: {name: a}\nspec: {}\n"
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  config.yaml: |\n    "


def run(tmp_path: Path, command: str, *documents: str, options: tuple[str, ...] = ()) -> Result:
    """Run a command on a file of documents."""
    file = tmp_path / "f.yaml"
    file.write_text("---\n".join(documents), encoding="utf-8")
    arguments = {
        "simulate": ["simulate", str(file)],
        "explain": ["explain", "-f", str(file), "--pod", "p"],
        "diff": ["diff", "a", "a", "--cluster", str(file)],
        "validate": ["validate", str(file)],
    }
    return CliRunner().invoke(bayplan, [*arguments[command], *options])


def config_map(configuration: str) -> str:
    return CONFIG_MAP + configuration.replace("\n", "\n    ").rstrip() + "\n"


@pytest.mark.parametrize("command", ["simulate", "explain", "diff"])
def test_every_command_rejects_them(tmp_path: Path, command: str) -> None:
    """All problems of all objects are printed with exit code 2; with --allow-invalid they are notes."""
    documents = NODE.replace("cpu: 4", "cpu: -4"), POD.replace("spec: {", "spec: {toleration: [], ")
    result = run(tmp_path, command, *documents)
    assert result.exit_code == 2
    assert "2 problems" in result.stderr
    assert "document 1 (Node n): status.capacity[cpu]: Invalid value: -4" in result.stderr
    assert (
        'document 2 (Pod p): spec.toleration: unknown field; remove it or correct its name (did you mean "tol'
        in result.stderr
    )
    allowed = run(tmp_path, command, NODE, documents[1], PROFILE, options=("--allow-invalid",))
    assert allowed.exit_code == 0, allowed.output
    assert "the API server would reject" in allowed.output


@pytest.mark.parametrize("command", ["simulate", "validate"])
@table(
    "document",
    ("configuration", CONFIGURATION.replace("/v1", "/v1beta3")),
    ("first", CONFIGURATION.replace("kubescheduler.config.k8s.io/v1", "componentconfig/v1alpha1")),
    ("config-map", config_map(CONFIGURATION.replace("/v1", "/v1beta3"))),
    ("profile", "apiVersion: bayplan.dev/v1\nkind: SchedulerProfile\nmetadata: {name: a}\nspec: {}\n"),
    ("group", "apiVersion: bayplan.io/v1alpha1\nkind: PluginConfig\nmetadata: {name: a}\n"),
    ("budget", "apiVersion: policy/v1beta1\nkind: PodDisruptionBudget\nmetadata: {name: a}\n"),
    ("pod", "apiVersion: apps/v1\nkind: Pod\nmetadata: {name: a}\n"),
    ("no-version", "kind: Node\nmetadata: {name: a}\n"),
)
def test_another_version_is_an_error(tmp_path: Path, command: str, document: str) -> None:
    """An object that decisions depend on is not ignored because of its version."""
    result = run(tmp_path, command, NODE, POD, document)
    assert result.exit_code == (2 if command == "simulate" else 1)
    assert "apiVersion: must be " in result.output


def test_a_misspelt_kind_is_an_error(tmp_path: Path) -> None:
    """A kind that a read group does not have is an error; one of another group is ignored with a notice."""
    wrong = run(tmp_path, "simulate", NODE, POD.replace("kind: Pod", "kind: Pods"))
    assert 'no kind "Pods" in v1 (did you mean "Pod"?)' in wrong.stderr
    other = run(tmp_path, "simulate", NODE, POD, POD.replace("apiVersion: v1", "apiVersion: example.com/v1"))
    assert other.exit_code == 0
    assert "1 Pod is ignored" in other.stderr


def test_a_configuration_in_a_config_map_is_read(tmp_path: Path) -> None:
    """Its profiles decide, and validate reports its problems at their place."""
    pod = POD.replace("containers", "schedulerName: a, containers")
    assert run(tmp_path, "simulate", NODE, pod, config_map(CONFIGURATION)).stdout.startswith("1 of 1 pods")
    wrong = run(tmp_path, "validate", config_map(CONFIGURATION + "parallelism: 0\n"))
    assert wrong.exit_code == 1
    assert "data[config.yaml].parallelism: must be greater than 0, not 0" in wrong.output


def test_claims_of_ephemeral_volumes_are_created(tmp_path: Path) -> None:
    """A pod with a generic ephemeral volume is scheduled where the claim can be provisioned."""
    template = "{spec: {accessModes: [ReadWriteOnce], storageClassName: s, resources: {requests: {storage: 6Gi}}}}"
    pod = POD.replace(
        "containers", f"volumes: [{{name: v, ephemeral: {{volumeClaimTemplate: {template}}}}}], containers"
    )
    storage_class = (
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: s}\nprovisioner: d.example.com\n"
        "volumeBindingMode: WaitForFirstConsumer\n"
    )
    driver = (
        "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: d.example.com}\n"
        "spec: {storageCapacity: true}\n"
    )
    capacity = (
        "apiVersion: storage.k8s.io/v1\nkind: CSIStorageCapacity\nmetadata: {name: c, namespace: default}\n"
        "storageClassName: s\ncapacity: 5Gi\nnodeTopology: {}\n"
    )
    small = run(tmp_path, "simulate", NODE, pod, storage_class, driver, capacity)
    assert "did not have enough free storage" in small.stdout
    large = run(tmp_path, "simulate", NODE, pod, storage_class, driver, capacity.replace("5Gi", "10Gi"))
    assert large.stdout.startswith("1 of 1 pods scheduled")
    elsewhere = (
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: p-v, namespace: other}\n"
        "spec: {accessModes: [ReadWriteOnce], storageClassName: s, resources: {requests: {storage: 1Gi}}}\n"
    )
    beside = run(tmp_path, "simulate", NODE, pod, storage_class, driver, capacity.replace("5Gi", "10Gi"), elsewhere)
    assert beside.stdout.startswith("1 of 1 pods scheduled")


def test_names_are_generated(tmp_path: Path) -> None:
    """Two pods with the same prefix get different names."""
    pod = POD.replace("name: p}", "generateName: job-}")
    found: Any = json.loads(run(tmp_path, "simulate", NODE, pod, pod, options=("-o", "json")).stdout)
    assert [each["name"] for each in found["pods"]] == ["job-00001", "job-00002"]


def test_a_cordoned_node_has_its_taint(tmp_path: Path) -> None:
    """Spread constraints that honour taints leave out a node that is only marked as unschedulable."""
    zones = [
        NODE.replace("name: n}", f"name: {name}, labels: {{zone: {name}}}}}").replace("status", f"{spec}status")
        for name, spec in (("a", ""), ("b", "spec: {unschedulable: true}\n"))
    ]
    constraint = (
        "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, nodeTaintsPolicy: Honor, "
        "labelSelector: {matchLabels: {a: b}}}"
    )
    pods = [
        POD.replace("name: p}", f"name: p{n}, labels: {{a: b}}}}").replace(
            "containers", f"topologySpreadConstraints: [{constraint}], containers"
        )
        for n in range(3)
    ]
    assert run(tmp_path, "simulate", *zones, *pods).stdout.startswith("3 of 3 pods")
    ignored = [pod.replace("Honor", "Ignore") for pod in pods]
    assert run(tmp_path, "simulate", *zones, *ignored).stdout.startswith("1 of 3 pods")


@table(
    "name, found",
    ("removed", "EBSLimits", "it was removed in Kubernetes 1.31, and NodeVolumeLimits does its work"),
    ("no-suggestion", "CapacityScheduling", 'there is no plugin "CapacityScheduling"; correct'),
    ("misspelt", "NodeResourceFit", 'did you mean "NodeResourcesFit"?'),
)
def test_unknown_plugins(tmp_path: Path, name: str, found: str) -> None:
    """A removed plugin is rejected with what replaces it, and only similar names are suggested."""
    plugins = f"profiles: [{{plugins: {{multiPoint: {{enabled: [{{name: {name}}}]}}}}}}]\n"
    result = run(tmp_path, "validate", CONFIGURATION.replace("profiles: [{schedulerName: a}]\n", plugins))
    assert result.exit_code == 1
    assert found in result.output


def test_problems_do_not_hide_others(tmp_path: Path) -> None:
    """The plugins of a profile with an invalid weight, and URLs of extenders, are validated too."""
    profile = "{plugins: {bind: {disabled: [{name: '*'}]}, score: {enabled: [{name: ImageLocality, weight: -1}]}}}"
    text = CONFIGURATION.replace("{schedulerName: a}", profile) + "extenders: [{urlPrefix: 'localhost:80'}]\n"
    result = run(tmp_path, "validate", text)
    for path in ("profiles[0].plugins.bind", "enabled[0].weight", "extenders[0].urlPrefix"):
        assert path in result.output
