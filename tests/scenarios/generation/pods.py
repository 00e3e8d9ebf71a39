"""Generates pods of scenarios.

The API server rejects a few of them, equally for both schedulers; its validation is not repeated here.
"""

from __future__ import annotations

from copy import deepcopy

from tests.scenarios.generation.pod_rules import affinity, prefer_low_ranks, spread_constraints, toleration
from tests.scenarios.generation.scene import ABSENT, APPS, HOST, PRIORITIES, ZONES, Json, Scene
from tests.scenarios.generation.storage import give_volume
from tests.scenarios.scenario import SCHEDULER_NAME

SLOW = "example.com/slow"
_CPU = ("100m", "500m", "1", "700m", "0.5", "2", "1e0", "900m", "3", "0.0005", "1250m")
_MEMORY = ("64Mi", "500M", "1Gi", "129e6", "0.1Gi", "123456789", "2Gi", "1500m", "1.5Gi")


def pod(scene: Scene, name: str) -> list[Json]:
    """Generate a pod and add it to the scene.

    Returns:
        Objects that the pod needs, then the pod.
    """
    metadata: Json = {"name": name, "labels": {}}
    if scene.p(0.8):
        metadata["labels"]["app"] = scene.pick(APPS)
    if scene.p(0.4):
        metadata["labels"]["version"] = scene.pick(["1", "2"])
    if scene.on("preemption", 0.2):
        metadata["finalizers"] = [SLOW]
    spec: Json = {"schedulerName": SCHEDULER_NAME, **_containers(scene)}
    _add_scheduler_and_priority(scene, spec)
    _add_rules(scene, spec)
    _add_ports(scene, spec)
    needed = give_volume(scene, spec) if scene.on("volumes", 0.6) else []
    manifest = {"kind": "Pod", "metadata": metadata, "spec": spec}
    if scene.on("gates", 0.4):
        spec["schedulingGates"] = [{"name": f"example.com/{one}"} for one in scene.some(["quota", "review"], 1, 2)]
        if scene.p(0.25):
            manifest["status"] = {"nominatedNodeName": scene.some_node()}
    # Later events must not modify the manifest of the creation.
    scene.pods[name] = deepcopy(manifest)
    return [*needed, manifest]


def _add_scheduler_and_priority(scene: Scene, spec: Json) -> None:
    """Set scheduler name, priority and node name; later pods, created on full nodes, have higher priorities."""
    if scene.on("preemption", 0.85, 0.1):
        late = len(scene.pods) > 3
        classes = [*PRIORITIES, "high", "high", "middle"] if late else ["low", "low", "middle", "never"]
        spec["priorityClassName"] = scene.pick(classes)
    if scene.p(0.08):
        spec["schedulerName"] = "nobody"
    if scene.nodes and scene.p(0.06):
        spec["nodeName"] = scene.pick(scene.nodes)


def _add_rules(scene: Scene, spec: Json) -> None:
    if scene.p(0.12):
        hosts = {HOST: scene.pick([*scene.nodes, ABSENT])}
        spec["nodeSelector"] = scene.pick([{"zone": scene.pick(ZONES)}, {"disk": "ssd"}, hosts])
    rules = affinity(scene)
    if scene.p(0.8):
        prefer_low_ranks(rules)
    if rules:
        spec["affinity"] = rules
    if scene.on("spread", 0.6):
        spec["topologySpreadConstraints"] = spread_constraints(scene)
    if scene.on("taints", 0.5):
        spec["tolerations"] = [toleration(scene)]


def _add_ports(scene: Scene, spec: Json) -> None:
    if not scene.on("ports", 0.7):
        return
    port: Json = {"containerPort": 80, "hostPort": scene.pick([80, 80, 81])}
    if scene.p(0.3):
        port["hostIP"] = scene.pick(["127.0.0.1", "0.0.0.0", "10.0.0.1"])  # noqa: S104 - not listened on
    if scene.p(0.2):
        port["protocol"] = "UDP"
    if scene.p(0.2):
        spec["hostNetwork"] = True
        port["containerPort"] = port["hostPort"]
    spec["containers"][0]["ports"] = [port]


def _containers(scene: Scene) -> Json:
    found: Json = {"containers": [_container(scene, "c")]}
    if scene.p(0.1):
        found["containers"].append(_container(scene, "d"))
    if scene.on("resources", 0.35):
        first = _container(scene, "i1")
        if scene.p(0.5):
            first["restartPolicy"] = "Always"
        found["initContainers"] = [first] if scene.p(0.6) else [first, _container(scene, "i2")]
    if scene.on("resources", 0.15):
        together = {"cpu": scene.pick(["4", "8"]), "memory": scene.pick(["8Gi", "20Gi"])}
        found["resources"] = {"requests": together}
    return found


def _container(scene: Scene, name: str) -> Json:
    requests = _requests(scene)
    # Extended resources and huge pages cannot be overcommitted: limits must equal requests.
    limits = {key: amount for key, amount in requests.items() if key not in ("cpu", "memory", "ephemeral-storage")}
    return {"name": name, "image": "i", "resources": {"requests": requests, **({"limits": limits} if limits else {})}}


def _requests(scene: Scene) -> Json:
    found = {"cpu": scene.pick(_CPU), "memory": scene.pick(_MEMORY)}
    if scene.on("preemption", 0.6, 0.0):
        found["cpu"] = scene.pick(["1", "1500m", "2", "800m"])
    if scene.p(0.1):
        del found[scene.pick(["cpu", "memory"])]
    if scene.p(0.05):
        found = {}
    if scene.on("resources", 0.35):
        found["example.com/gpu"] = scene.pick(["1", "1", "2", "0"])
    if scene.on("resources", 0.15):
        found["ephemeral-storage"] = scene.pick(["500Mi", "5Gi", "20Gi"])
    if found and scene.on("resources", 0.1):
        found["hugepages-2Mi"] = "32Mi"
    return found
