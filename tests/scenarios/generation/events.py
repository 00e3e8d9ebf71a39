"""Generates the events of scenarios other than the creation of pods.

Each event function returns one or more steps of a scenario's document, or None if the event is not possible now.
"""

from __future__ import annotations

from collections.abc import Callable

from hack.controlplane.volume_controller import PROVISIONER
from tests.scenarios.generation.nodes import node, volume_limit
from tests.scenarios.generation.pods import pod
from tests.scenarios.generation.scene import ABSENT, APPS, MOST_NODES, ZONES, Json, Scene
from tests.scenarios.generation.storage import LATE, MADE, NO_PROVISIONER, NOW, claim, storage_class, volume

_TRIES = 20
_RESIZED = ("50m", "100m", "2")


def event(scene: Scene) -> list[Json]:
    """Generate the steps of one event, usually one step; no steps if no tried event is possible."""
    for _ in range(_TRIES):
        steps = scene.pick(_EVENTS)(scene)
        if steps is not None:
            return steps if isinstance(steps, list) else [steps]
    return []


def budget(scene: Scene) -> Json:
    """Generate a PodDisruptionBudget with a status, because no disruption controller runs."""
    selector = {"matchLabels": {"app": scene.pick(APPS)}} if scene.p(0.5) else {}
    allowed = scene.pick([0, 0, 1, 2])
    return {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": f"budget{scene.number()}"},
        "spec": {"minAvailable": 1, "selector": selector},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
    }


def _change(what: str, patch: Json, subresource: str = "") -> Json:
    return {"change": [{"object": what, "patch": patch} | ({"subresource": subresource} if subresource else {})]}


# -- nodes ---------------------------------------------------------------------------------------------------------


def _node_added(scene: Scene) -> Json | None:
    return {"objects": [node(scene, f"n{scene.ranks}")]} if scene.ranks < MOST_NODES else None


def _node_deleted(scene: Scene) -> Json | None:
    if len(scene.nodes) < 2:
        # Without nodes, pods are retried continually and the cluster never becomes quiet.
        return None
    name = scene.pick(scene.nodes)
    del scene.nodes[name]
    return {"delete": [f"Node/{name}"]}


def _cordoned(scene: Scene) -> Json | None:
    name = scene.pick(scene.nodes)
    scene.nodes[name]["spec"]["unschedulable"] = True
    return _change(f"Node/{name}", {"spec": {"unschedulable": True}})


def _uncordoned(scene: Scene) -> Json | None:
    return _unset(scene, "unschedulable")


def _unset(scene: Scene, field: str) -> Json | None:
    """Remove a field from the spec of a node that has it; None without such a node."""
    names = [name for name, one in scene.nodes.items() if one["spec"].get(field)]
    if not names:
        return None
    name = scene.pick(names)
    del scene.nodes[name]["spec"][field]
    return _change(f"Node/{name}", {"spec": {field: None}})


def _labelled(scene: Scene) -> Json | None:
    variants: list[Json] = [{"zone": scene.pick([*ZONES, None])}, {"disk": scene.pick(["ssd", "hdd", None])}]
    return _change(f"Node/{scene.pick(scene.nodes)}", {"metadata": {"labels": scene.pick(variants)}})


def _tainted(scene: Scene) -> Json | None:
    name = scene.pick(scene.nodes)
    taints = [{"key": "dedicated", "value": "a", "effect": "NoSchedule"}]
    scene.nodes[name]["spec"]["taints"] = taints
    return _change(f"Node/{name}", {"spec": {"taints": taints}})


def _untainted(scene: Scene) -> Json | None:
    return _unset(scene, "taints")


def _resized_node(scene: Scene) -> Json | None:
    variants: list[Json] = [
        {"cpu": "16"},
        {"memory": "64Gi"},
        {"pods": "110"},
        {"cpu": "16", "memory": "64Gi", "pods": "110"},
        {"example.com/gpu": "8"},
        {"cpu": "1"},
        {"memory": "1Gi"},
        {"pods": "1"},
    ]
    return _change(f"Node/{scene.pick(scene.nodes)}", {"status": {"allocatable": scene.pick(variants)}}, "status")


def _volumes_limited(scene: Scene) -> Json | None:
    return {"objects": [volume_limit(scene, scene.pick(scene.nodes))]} if "volumes" in scene.themes else None


# -- pods ----------------------------------------------------------------------------------------------------------


def _pod_deleted(scene: Scene) -> Json | None:
    if not scene.pods:
        return None
    name = scene.pick(scene.pods)
    if "finalizers" not in scene.pods[name]["metadata"]:
        del scene.pods[name]
    return {"delete": [f"Pod/{name}"]}


def _pod_replaced(scene: Scene) -> list[Json] | None:
    names = [name for name, one in scene.pods.items() if "finalizers" not in one["metadata"]]
    if not names:
        return None
    name = scene.pick(names)
    return [{"delete": [f"Pod/{name}"]}, {"objects": pod(scene, name)}]


def _finalizer_removed(scene: Scene) -> Json | None:
    names = [name for name, one in scene.pods.items() if "finalizers" in one["metadata"]]
    if not names:
        return None
    name = scene.pick(names)
    del scene.pods[name]["metadata"]["finalizers"]
    return _change(f"Pod/{name}", {"metadata": {"finalizers": None}})


def _gate_removed(scene: Scene) -> Json | None:
    names = [name for name, one in scene.pods.items() if one["spec"].get("schedulingGates")]
    if not names:
        return None
    name = scene.pick(names)
    spec = scene.pods[name]["spec"]
    left = spec["schedulingGates"][1:] if scene.p(0.3) else []
    before = []
    if "nodeSelector" not in spec and scene.p(0.2):
        # The API server allows a change of the node selector while a pod is gated.
        spec["nodeSelector"] = {"zone": "x"}
        before = [{"object": f"Pod/{name}", "patch": {"spec": {"nodeSelector": spec["nodeSelector"]}}}]
    spec["schedulingGates"] = left
    return {"change": [*before, {"object": f"Pod/{name}", "patch": {"spec": {"schedulingGates": left or None}}}]}


def _pod_labelled(scene: Scene) -> Json | None:
    labels = {"app": scene.pick([*APPS, None])}
    return _change(f"Pod/{scene.pick(scene.pods)}", {"metadata": {"labels": labels}}) if scene.pods else None


def _pod_annotated(scene: Scene) -> Json | None:
    note = {"example.com/note": str(scene.number())}
    return _change(f"Pod/{scene.pick(scene.pods)}", {"metadata": {"annotations": note}}) if scene.pods else None


def _tolerates(scene: Scene) -> Json | None:
    """Add a toleration to a pod; the patch repeats those that the API server added, as none may be removed."""
    if not scene.pods:
        return None
    name = scene.pick(scene.pods)
    tolerated = scene.pods[name]["spec"].setdefault("tolerations", [])
    key = scene.pick(["dedicated", "other", "node.kubernetes.io/unschedulable"])
    tolerated.append({"key": key, "operator": "Exists"})
    defaults = [
        {"key": f"node.kubernetes.io/{why}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for why in ("not-ready", "unreachable")
    ]
    return _change(f"Pod/{name}", {"spec": {"tolerations": [*tolerated, *defaults]}})


def _pod_ended(scene: Scene) -> Json | None:
    phase = scene.pick(["Succeeded", "Failed"])
    return _change(f"Pod/{scene.pick(scene.pods)}", {"status": {"phase": phase}}, "status") if scene.pods else None


def _nominated(scene: Scene) -> Json | None:
    node_name = scene.pick([*scene.nodes, ABSENT, ""])
    return (
        _change(f"Pod/{scene.pick(scene.pods)}", {"status": {"nominatedNodeName": node_name}}, "status")
        if scene.pods
        else None
    )


def _bound_by_another_client(scene: Scene) -> Json | None:
    return {"bind": {scene.pick(scene.pods): scene.some_node()}} if scene.pods else None


def _pod_resized(scene: Scene) -> list[Json] | None:
    """Resize a container in place; in most cases, a further step reports the new size as the kubelet would."""
    names = [name for name, one in scene.pods.items() if len(one["spec"]["containers"]) == 1]
    if not names:
        return None
    name = scene.pick(names)
    (container,) = scene.pods[name]["spec"]["containers"]
    before = container["resources"]["requests"]
    after = before | {"cpu": scene.pick(_RESIZED)}
    container = container | {"resources": container["resources"] | {"requests": after}}
    scene.pods[name]["spec"]["containers"] = [container]
    # A merge patch replaces the list of containers, so the patch contains the whole container.
    resize = {"object": f"Pod/{name}", "patch": {"spec": {"containers": [container]}}, "subresource": "resize"}
    steps = [{"change": [_runs_with(name, before), resize]}]
    return [*steps, {"change": [_runs_with(name, after)]}] if scene.p(0.7) else steps


def _runs_with(name: str, requests: Json) -> Json:
    """Return a patch with a container's status; the API server resizes only containers with a status."""
    status = {
        "name": "c",
        "image": "i",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        "resources": {"requests": requests},
        "allocatedResources": requests,
    }
    return {"object": f"Pod/{name}", "patch": {"status": {"containerStatuses": [status]}}, "subresource": "status"}


def _budget_made(scene: Scene) -> Json | None:
    return {"objects": [budget(scene)]}


# -- storage -------------------------------------------------------------------------------------------------------


def _claim_made(scene: Scene) -> Json | None:
    if not scene.claims:
        return None
    return {"objects": [claim(scene, scene.pick(scene.claims), scene.pick([LATE, MADE, NOW]))]}


def _volume_made(scene: Scene) -> Json | None:
    if "volumes" not in scene.themes:
        return None
    claimed_by = scene.pick(scene.claims) if scene.claims and scene.p(0.6) else None
    class_name = scene.claims[claimed_by] if claimed_by else LATE
    return {"objects": [volume(scene, f"{scene.name}-v{scene.number()}", class_name, claimed_by)]}


def _class_made(scene: Scene) -> Json | None:
    if "volumes" not in scene.themes:
        return None
    return {"objects": [storage_class(ABSENT, scene.pick([PROVISIONER, NO_PROVISIONER]))]}


def _claim_deleted(scene: Scene) -> Json | None:
    return {"delete": [f"PersistentVolumeClaim/{scene.pick(scene.claims)}"]} if scene.claims else None


def _volume_deleted(scene: Scene) -> Json | None:
    return {"delete": [f"PersistentVolume/{scene.pick(scene.volumes)}"]} if scene.volumes else None


_EVENTS: tuple[Callable[[Scene], Json | list[Json] | None], ...] = (
    *(_node_added, _node_added, _node_deleted, _cordoned, _uncordoned, _labelled, _labelled, _tainted, _untainted),
    *(_resized_node, _resized_node, _volumes_limited),
    *(_pod_deleted, _pod_deleted, _pod_deleted, _pod_replaced, _finalizer_removed, _gate_removed, _gate_removed),
    *(
        _pod_labelled,
        _pod_annotated,
        _tolerates,
        _pod_ended,
        _nominated,
        _bound_by_another_client,
        _pod_resized,
        _budget_made,
    ),
    *(_claim_made, _volume_made, _class_made, _claim_deleted, _volume_deleted),
)
