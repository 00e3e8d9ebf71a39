"""The format of scenario files: steps, each of which creates or changes objects and states the expected outcome.

Short forms are expanded into whole manifests here.

    description: One sentence.
    steps:
      - nodes: {large: {cpu: "8"}, small: {cpu: "2", labels: {...}, taints: [...]}}
      - objects: [whole manifests]
      - pods: {p: {cpu: "1", labels: {...}, spec: {fields of a pod's spec}}}
        wait: {bound: [p], refused: [], gone: [], nominated: []}
      - change: [{object: Pod/p, patch: {...}, subresource: status}]
      - delete: [Pod/p]
      - bind: {p: large}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]

SCHEDULER_NAME = "compared"
"""Scheduler name in the pods, the same for both schedulers, so that results do not differ by it."""

_API_VERSIONS = {
    "CSINode": "storage.k8s.io/v1",
    "PodDisruptionBudget": "policy/v1",
    "PriorityClass": "scheduling.k8s.io/v1",
    "StorageClass": "storage.k8s.io/v1",
}
_WORDS = {"nodes", "objects", "pods", "change", "delete", "bind", "wait"}
_WAITS = ("bound", "refused", "gone", "nominated")


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one object.

    Attributes:
        reference: The object: its kind and its name.
        patch: A merge patch.
        subresource: What of the object is patched; "" for the object itself.
    """

    reference: Manifest
    patch: Manifest
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens.

    Attributes:
        creates: Whole manifests.
        changes: What is changed.
        deletes: Objects.
        binds: Nodes that somebody else than the scheduler binds pods to, by the names of the pods.
        waits: Names of pods, by the state that each must reach before the next step.
    """

    creates: tuple[Manifest, ...] = ()
    changes: tuple[Change, ...] = ()
    deletes: tuple[Manifest, ...] = ()
    binds: Mapping[str, str] = field(default_factory=dict)
    waits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A file.

    Attributes:
        name: The file's, and that of the namespace.
        description: Behaviour that the scenario tests.
        steps: In their order.
    """

    name: str
    description: str
    steps: tuple[Step, ...]


def read_scenario(path: Path) -> Scenario:
    """Read a file.

    Args:
        path: Of the file.
    """
    return scenario_of(path.stem, yaml.safe_load(path.read_text()))


def scenario_of(name: str, document: Manifest) -> Scenario:
    """Understand a document.

    Args:
        name: Of the scenario, and of its namespace.
        document: In the format above.
    """
    return Scenario(name, document["description"], tuple(_step(one, name) for one in document["steps"]))


def read_scenarios(directory: Path) -> list[Scenario]:
    """Read every file of a directory, in the order of their names."""
    return [read_scenario(path) for path in sorted(directory.glob("*.yaml"))]


def _step(document: Manifest, namespace: str) -> Step:
    creates = [node_manifest(name, fields or {}) for name, fields in document.get("nodes", {}).items()]
    creates += [_whole(manifest, namespace) for manifest in document.get("objects", ())]
    creates += [pod_manifest(name, namespace, fields or {}) for name, fields in document.get("pods", {}).items()]
    changes = tuple(
        Change(_reference(one["object"], namespace), one["patch"], one.get("subresource", ""))
        for one in document.get("change", ())
    )
    deletes = tuple(_reference(one, namespace) for one in document.get("delete", ()))
    waits = {state: tuple(names) for state, names in document.get("wait", {}).items()}
    unknown = set(waits) - set(_WAITS) or set(document) - _WORDS
    if unknown:
        raise ValueError(f"scenario {namespace}: unknown words {sorted(unknown)}; see the format in {__name__}")
    return Step(tuple(creates), changes, deletes, document.get("bind", {}), waits)


def node_manifest(name: str, fields: Manifest) -> Manifest:
    """Make a Ready node.

    Args:
        name: Its name and its host label.
        fields: ``cpu``, ``memory`` and ``pods`` that are allocatable, ``labels``, ``taints``, ``cordoned``.
    """
    amounts = {"cpu": fields.get("cpu", "4"), "memory": fields.get("memory", "32Gi"), "pods": fields.get("pods", "110")}
    spec = {"taints": fields["taints"]} if "taints" in fields else {}
    labels = {"kubernetes.io/hostname": name, **fields.get("labels", {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec | ({"unschedulable": True} if fields.get("cordoned") else {}),
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod_manifest(name: str, namespace: str, fields: Manifest) -> Manifest:
    """Make a pod of one container.

    Args:
        name: Its name.
        namespace: Its namespace.
        fields: ``cpu`` and ``memory`` that it requests, ``labels``, ``finalizers``, and fields that are added to its
            ``container`` and its ``spec``.
    """
    requests = {"cpu": fields.get("cpu", "100m"), "memory": fields.get("memory", "64Mi")}
    container = {"name": "c", "image": "i", "resources": {"requests": requests}, **fields.get("container", {})}
    metadata = {"name": name, "namespace": namespace, "labels": fields.get("labels", {})}
    metadata |= {"finalizers": fields["finalizers"]} if "finalizers" in fields else {}
    spec = {"schedulerName": SCHEDULER_NAME, "containers": [container], **fields.get("spec", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _whole(manifest: Manifest, namespace: str) -> Manifest:
    metadata = {"namespace": namespace, **manifest["metadata"]}
    return {"apiVersion": _API_VERSIONS.get(manifest["kind"], "v1"), **manifest, "metadata": metadata}


def _reference(text: str, namespace: str) -> Manifest:
    kind, _, name = text.partition("/")
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": _API_VERSIONS.get(kind, "v1"), "kind": kind, "metadata": metadata}
