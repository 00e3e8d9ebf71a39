"""Generation of changes of nodes."""

from __future__ import annotations

import copy
from collections.abc import Callable

from tests.parity.oracle.generation.hint_scene import Scene
from tests.parity.oracle.generation.world import HOST, ZONE, Json

_FEATURES = ["RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport", "GuaranteedQoSPodCPUResize"]
_EFFECTS = ["NoSchedule", "NoExecute", "PreferNoSchedule"]


def added(scene: Scene) -> Json:
    """Add a node."""
    nodes = scene.objects("nodes")
    node = copy.deepcopy(scene.pick(nodes)) if nodes else {"metadata": {}, "spec": {}, "status": {}}
    meta = node["metadata"]
    meta.update(name="newcomer", uid="uid-of-newcomer")
    meta.setdefault("labels", {})[HOST] = "newcomer"
    if scene.p(0.4):
        node["spec"].pop("taints", None)
    for _ in range(scene.rng.randint(0, 2)):
        scene.pick(_CHANGES)(scene, node)
    return scene.add("Node", node)


def updated(scene: Scene) -> Json | None:
    """Update a node."""
    nodes = scene.objects("nodes")
    if not nodes:
        return None
    old = scene.pick(nodes)
    for _ in range(scene.pick([0, 0, 1, 2])):
        scene.pick(_CHANGES)(scene, old)
    old["metadata"].setdefault("labels", {})[HOST] = old["metadata"]["name"]
    if scene.p(0.25):
        return scene.update("Node", "nodes", *_accepting(scene, old))
    new = copy.deepcopy(old)
    for _ in range(scene.pick([0, 1, 1, 1, 2, 3])):
        scene.pick(_CHANGES)(scene, new)
    return scene.update("Node", "nodes", old, new)


def _accepting(scene: Scene, node: Json) -> tuple[Json, Json]:
    """Return a node that rejects pods, and the same node when it accepts more of them."""
    spec = node.setdefault("spec", {})
    if scene.p(0.6):
        spec["taints"] = [*(spec.get("taints") or []), {"key": "closed", "effect": scene.pick(_EFFECTS)}]
    if scene.p(0.6):
        spec["unschedulable"] = True
    new = copy.deepcopy(node)
    if scene.p(0.7):
        new["spec"].pop("unschedulable", None)
    if scene.p(0.7):
        new["spec"].pop("taints", None)
    return node, new


def deleted(scene: Scene) -> Json | None:
    """Delete a node."""
    nodes = scene.objects("nodes")
    return scene.delete("Node", "nodes", scene.pick(nodes)) if nodes else None


def _allocatable(scene: Scene, node: Json) -> None:
    amounts = node.setdefault("status", {}).setdefault("allocatable", {})
    how = scene.pick(["grow", "grow", "shrink", "rewrite", "drop", "new", "pods", "huge"])
    name = scene.pick(["cpu", "cpu", "memory", "ephemeral-storage", "example.com/gpu", *amounts])
    if how == "grow":
        amounts[name] = scene.pick(["64", "64000m", "900Gi", "1Ti"])
    elif how == "shrink":
        amounts[name] = scene.pick(["0", "1", "10m", "1Mi"])
    elif how == "rewrite":
        _rewrite(amounts)
    elif how == "drop":
        amounts.pop(name, None)
    elif how == "new":
        amounts[scene.pick(["example.com/gpu", "hugepages-2Mi", "example.com/none"])] = scene.pick(["0", "4", "8Mi"])
    elif how == "pods":
        amounts["pods"] = scene.pick(["0", "1", "110", "250"])
    else:
        for each in (*_requested_resources(scene), "cpu", "memory", "ephemeral-storage"):
            amounts[each] = "100Gi"
        amounts["pods"] = "110"


def _rewrite(amounts: dict[str, str]) -> None:
    """Write the same amounts in another notation."""
    for name, text in amounts.items():
        if text.isdigit():
            amounts[name] = f"{text}000m"
        elif text.endswith("Gi") and text[:-2].isdigit():
            amounts[name] = f"{int(text[:-2]) * 1024}Mi"


def _requested_resources(scene: Scene) -> list[str]:
    return [
        name
        for container in scene.pod["spec"].get("containers", [])
        for name in container.get("resources", {}).get("requests", {})
    ]


def _labels(scene: Scene, node: Json) -> None:
    labels = node["metadata"].setdefault("labels", {})
    how = scene.pick(["suit", "suit", "topology", "topology", "drop", "other"])
    if how == "suit":
        _add_required_labels(scene, labels)
    elif how == "topology":
        key = scene.pick([*scene.topology_keys(), ZONE])
        if key != HOST:
            labels[key] = scene.pick(["zone-a", "zone-b", "zone-q", ""])
    elif how == "drop":
        keys = [*scene.topology_keys(), *sorted(labels)]
        key = scene.pick(keys) if keys else ""
        if key != HOST:
            labels.pop(key, None)
    else:
        labels["example.com/note"] = scene.pick(["a", "b"])


def _add_required_labels(scene: Scene, labels: dict[str, str]) -> None:
    """Add labels that the pod requires of its node."""
    spec = scene.pod["spec"]
    labels.update(spec.get("nodeSelector") or {})
    terms = (
        spec.get("affinity", {})
        .get("nodeAffinity", {})
        .get("requiredDuringSchedulingIgnoredDuringExecution", {})
        .get("nodeSelectorTerms", [])
    )
    for one in scene.pick(terms).get("matchExpressions", []) if terms else []:
        if one["key"] == HOST:
            continue
        if one["operator"] == "In":
            labels[one["key"]] = one["values"][0]
        elif one["operator"] in ("Exists", "Gt", "Lt"):
            labels[one["key"]] = {"Exists": "x", "Gt": "100000", "Lt": "-100000"}[one["operator"]]
        else:
            labels.pop(one["key"], None)


def _taints(scene: Scene, node: Json) -> None:
    spec = node.setdefault("spec", {})
    taints = spec.get("taints") or []
    how = scene.pick(["clear", "clear", "add", "add", "drop", "order"])
    if how == "clear":
        taints = []
    elif how == "add":
        made = {"key": scene.pick(["dedicated", "example.com/drain"]), "effect": scene.pick(_EFFECTS)}
        if scene.p(0.5):
            made["value"] = "team"
        taints = [*taints, made]
    elif how == "drop" and taints:
        taints = taints[1:]
    else:
        taints = taints[::-1]
    spec["taints"] = taints
    if not taints:
        del spec["taints"]


def _cordon(scene: Scene, node: Json) -> None:
    spec = node.setdefault("spec", {})
    if spec.pop("unschedulable", False):
        return
    spec["unschedulable"] = True


def _conditions(scene: Scene, node: Json) -> None:
    ready = {"type": "Ready", "status": scene.pick(["True", "False", "Unknown"])}
    node.setdefault("status", {})["conditions"] = [{**ready, "lastHeartbeatTime": "2026-03-01T00:00:00Z"}]


def _annotations(scene: Scene, node: Json) -> None:
    node["metadata"].setdefault("annotations", {})["example.com/ttl"] = scene.pick(["0", "1"])


def _features(scene: Scene, node: Json) -> None:
    chosen = sorted(scene.rng.sample(_FEATURES, scene.rng.randint(0, 2)))
    node.setdefault("status", {})["declaredFeatures"] = chosen
    if not chosen:
        del node["status"]["declaredFeatures"]


_CHANGES: list[Callable[[Scene, Json], None]] = [
    _allocatable,
    _allocatable,
    _labels,
    _labels,
    _taints,
    _cordon,
    _conditions,
    _annotations,
    _features,
]
