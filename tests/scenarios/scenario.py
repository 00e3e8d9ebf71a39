"""Format of scenario files: steps that create or change objects and list the pod states to wait for.

Short forms are expanded into complete manifests here.

    description: One sentence.
    steps:
      - nodes: {large: {cpu: "8"}, small: {cpu: "2", labels: {...}, taints: [...]}}
      - objects: [complete manifests]
      - pods: {p: {cpu: "1", labels: {...}, spec: {fields of a pod's spec}}}
        wait: {bound: [p], unschedulable: [], gone: [], nominated: []}
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
_FIELDS = {"nodes", "objects", "pods", "change", "delete", "bind", "wait"}
_WAITS = ("bound", "unschedulable", "gone", "nominated")


@dataclass(frozen=True, slots=True)
class Change:
    """Patch of one object.

    Attributes:
        reference: Kind, name and namespace of the object.
        patch: Merge patch.
        subresource: Patched subresource; "" for the object itself.
    """

    reference: Manifest
    patch: Manifest
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a scenario.

    Attributes:
        changes: Patches to apply.
        deletes: References of the objects to delete.
        binds: Node names by pod name, for pods that another client than the scheduler binds.
        waits: Pod names by the state that they must reach before the next step.
    """

    creates: tuple[Manifest, ...] = ()
    changes: tuple[Change, ...] = ()
    deletes: tuple[Manifest, ...] = ()
    binds: Mapping[str, str] = field(default_factory=dict)
    waits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Decoded scenario file.

    Attributes:
        name: Name of the file and of the namespace.
        description: Behaviour that the scenario tests.
        steps: Steps in order.
    """

    name: str
    description: str
    steps: tuple[Step, ...]


def read_scenario(path: Path) -> Scenario:
    """Read a scenario file."""
    return scenario_of(path.stem, yaml.safe_load(path.read_text()))


def scenario_of(name: str, document: Manifest) -> Scenario:
    """Decode a document in the format above.

    Args:
        name: Name of the scenario and of its namespace.
    """
    return Scenario(name, document["description"], tuple(_step(one, name) for one in document["steps"]))


def read_scenarios(directory: Path) -> list[Scenario]:
    """Read every file of a directory, ordered by file name."""
    return [read_scenario(path) for path in sorted(directory.glob("*.yaml"))]


def _step(document: Manifest, namespace: str) -> Step:
    creates = [node_manifest(name, fields or {}) for name, fields in document.get("nodes", {}).items()]
    creates += [_complete(manifest, namespace) for manifest in document.get("objects", ())]
    creates += [pod_manifest(name, namespace, fields or {}) for name, fields in document.get("pods", {}).items()]
    changes = tuple(
        Change(_reference(one["object"], namespace), one["patch"], one.get("subresource", ""))
        for one in document.get("change", ())
    )
    deletes = tuple(_reference(one, namespace) for one in document.get("delete", ()))
    waits = {state: tuple(names) for state, names in document.get("wait", {}).items()}
    unknown = set(waits) - set(_WAITS) or set(document) - _FIELDS
    if unknown:
        raise ValueError(f"scenario {namespace}: unknown fields {sorted(unknown)}; see the format in {__name__}")
    return Step(tuple(creates), changes, deletes, document.get("bind", {}), waits)


def node_manifest(name: str, fields: Manifest) -> Manifest:
    """Return a Ready node.

    Args:
        name: Name of the node and value of its hostname label.
        fields: Allocatable ``cpu``, ``memory`` and ``pods``, ``labels``, ``taints``, ``cordoned``.
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
    """Return a pod with one container.

    Args:
        fields: Requested ``cpu`` and ``memory``, ``labels``, ``finalizers``, and fields that are added to the
            ``container`` and the ``spec``.
    """
    requests = {"cpu": fields.get("cpu", "100m"), "memory": fields.get("memory", "64Mi")}
    container = {"name": "c", "image": "i", "resources": {"requests": requests}, **fields.get("container", {})}
    metadata = {"name": name, "namespace": namespace, "labels": fields.get("labels", {})}
    metadata |= {"finalizers": fields["finalizers"]} if "finalizers" in fields else {}
    spec = {"schedulerName": SCHEDULER_NAME, "containers": [container], **fields.get("spec", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _complete(manifest: Manifest, namespace: str) -> Manifest:
    metadata = {"namespace": namespace, **manifest["metadata"]}
    return {"apiVersion": _API_VERSIONS.get(manifest["kind"], "v1"), **manifest, "metadata": metadata}


def _reference(text: str, namespace: str) -> Manifest:
    kind, _, name = text.partition("/")
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": _API_VERSIONS.get(kind, "v1"), "kind": kind, "metadata": metadata}
