"""Generates nodes of scenarios and their volume limits.

The capacities differ widely: the choice between nodes with equal scores is random, so it cannot be compared.
"""

from __future__ import annotations

from copy import deepcopy

from hack.controlplane.volume_controller import PROVISIONER
from tests.scenarios.generation.scene import HOST, RANK, ZONES, Json, Scene


def node(scene: Scene, name: str) -> Json:
    """Generate a Ready node and add it to the scene."""
    labels = {HOST: name, RANK: str(scene.ranks)}
    scene.ranks += 1
    if scene.p(0.85):
        labels["zone"] = scene.pick(ZONES[:2] if scene.p(0.7) else ZONES)
    if scene.p(0.4):
        labels["disk"] = scene.pick(["ssd", "hdd"])
    spec: Json = {}
    if scene.on("taints", 0.4):
        effects = ["NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule"]
        key, value = scene.pick(["dedicated", "other"]), scene.pick(["a", "b", ""])
        spec["taints"] = [{"key": key, "value": value, "effect": scene.pick(effects)}]
    if scene.p(0.08):
        spec["unschedulable"] = True
    amounts = _amounts(scene)
    manifest: Json = {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    # Later events must not modify the manifest of the creation.
    scene.nodes[name] = deepcopy(manifest)
    return manifest


def _amounts(scene: Scene) -> Json:
    tight = scene.on("preemption", 0.7, 0.0)
    amounts = {
        "cpu": scene.pick(["1", "1500m", "2", "3"] if tight else ["1", "2", "2500m", "3", "4", "6", "8"]),
        "memory": scene.pick(["2Gi", "4Gi", "8G", "16Gi", "32Gi", "4000000000"]),
        "pods": scene.pick(["110", "110", "110", "3", "2", "1"]),
    }
    if scene.on("resources", 0.5):
        amounts["example.com/gpu"] = scene.pick(["0", "1", "2", "4"])
    if scene.p(0.2):
        amounts["ephemeral-storage"] = scene.pick(["1Gi", "10Gi"])
    if scene.on("resources", 0.2):
        amounts["hugepages-2Mi"] = scene.pick(["0", "64Mi"])
    return amounts


def volume_limit(scene: Scene, name: str) -> Json:
    """Generate a CSINode that limits the number of the driver's volumes on a node."""
    limits = [{"name": PROVISIONER, "nodeID": name, "allocatable": {"count": scene.pick([0, 1, 2])}}]
    return {"kind": "CSINode", "metadata": {"name": name}, "spec": {"drivers": limits}}
