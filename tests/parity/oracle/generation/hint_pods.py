"""Generation of changes of pods, and of updates of the waiting pod."""

from __future__ import annotations

import copy
from collections.abc import Callable

from tests.parity.oracle.generation.hint_scene import Scene
from tests.parity.oracle.generation.world import HOST, RACK, ZONE, Json

_ENDED = ("Succeeded", "Failed")
_TOLERATIONS: list[Json] = [
    {"operator": "Exists"},
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "dedicated", "operator": "Equal", "value": "team", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
]
_SELECTORS = [
    {"matchLabels": {"app": "web"}},
    {"matchLabels": {"app": "db", "tier": "back"}},
    {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "api"]}]},
    {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["front"]}]},
    {},
]


def add_features(scene: Scene) -> None:
    """Add features to the waiting pod that queueing hints check."""
    spec = scene.pod["spec"]
    for extension in _EXTENSIONS:
        if scene.p(0.2):
            extension(scene, spec)


def _ports(scene: Scene, spec: Json) -> None:
    port = {"containerPort": 80, "hostPort": scene.pick([80, 8080]), "protocol": "TCP"}
    spec["containers"][0]["ports"] = [port]


def _affinity(scene: Scene, spec: Json) -> None:
    term = {"topologyKey": scene.pick([ZONE, HOST]), "labelSelector": copy.deepcopy(scene.pick(_SELECTORS))}
    if scene.p(0.2):
        term["namespaceSelector"] = {}
    kind = scene.pick(["podAffinity", "podAntiAffinity"])
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    spec.setdefault("affinity", {})[kind] = required


def _spread(scene: Scene, spec: Json) -> None:
    made = {
        "maxSkew": 1,
        "topologyKey": scene.pick([ZONE, ZONE, HOST, RACK]),
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": copy.deepcopy(scene.pick(_SELECTORS)),
    }
    if scene.p(0.5):
        made["nodeTaintsPolicy"] = scene.pick(["Honor", "Ignore"])
    spec["topologySpreadConstraints"] = [*spec.get("topologySpreadConstraints", []), made][:3]


def _features(scene: Scene, spec: Json) -> None:
    if scene.p(0.5):
        spec.update(hostNetwork=True, hostUsers=False)
    else:
        rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [3]}}
        spec["containers"][0].update(restartPolicy="Never", restartPolicyRules=[rule])


def _gates(scene: Scene, spec: Json) -> None:
    spec["schedulingGates"] = [{"name": "example.com/a"}, {"name": "example.com/b"}][: scene.rng.randint(1, 2)]


def _volumes(scene: Scene, spec: Json) -> None:
    volume = scene.pick(
        [
            {"name": "dressed", "persistentVolumeClaim": {"claimName": "dressed"}},
            {"name": "dressed", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}},
            {"name": "dressed", "csi": {"driver": "disk.example.com"}},
            {"name": "dressed", "gcePersistentDisk": {"pdName": "disk-a"}},
            {"name": "dressed", "awsElasticBlockStore": {"volumeID": "aws://zone-a/vol-1"}},
            {"name": "dressed", "iscsi": {"targetPortal": "10.0.0.9", "iqn": "iqn.2026-01.com.example:a", "lun": 0}},
            {"name": "dressed", "azureDisk": {"diskName": "d", "diskURI": "/subscriptions/x/d", "kind": "Managed"}},
            {"name": "dressed", "azureFile": {"secretName": "s", "shareName": "share"}},
            {"name": "dressed", "cinder": {"volumeID": "v"}},
            {"name": "dressed", "vsphereVolume": {"volumePath": "[x] a.vmdk"}},
            {"name": "dressed", "portworxVolume": {"volumeID": "v"}},
            {"name": "dressed", "emptyDir": {}},
        ]
    )
    spec["volumes"] = [*spec.get("volumes", []), copy.deepcopy(volume)]


def _lower_requests(scene: Scene, spec: Json) -> None:
    """Lower the requests of the pod, so that freed resources may not affect it."""
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        container.pop("resources", None)
    spec.pop("resources", None)
    if scene.p(0.6):
        requested = {"example.com/gpu": "1"} if scene.p(0.5) else {"ephemeral-storage": "1Mi"}
        spec["containers"][0]["resources"] = {"requests": requested, "limits": requested}


_EXTENSIONS: list[Callable[[Scene, Json], None]] = [
    _lower_requests,
    _ports,
    _affinity,
    _spread,
    _features,
    _gates,
    _volumes,
]


def _other_pod(scene: Scene) -> Json:
    """Return another pod: an existing pod, or a copy of the waiting pod."""
    existing = [pod for pod in scene.objects("pods") if pod.get("status", {}).get("phase") not in _ENDED]
    if existing and scene.p(0.5):
        pod = scene.pick(existing)
    else:
        pod = copy.deepcopy(scene.pod)
        pod["metadata"].update(name="another", uid="uid-of-another")
        pod["spec"].pop("schedulingGates", None)
    labels = pod["metadata"].setdefault("labels", {})
    if scene.p(0.5):
        labels.update(scene.matching_labels())
    if scene.p(0.15):
        pod["metadata"]["namespace"] = scene.pick(["default", "elsewhere"])
    if scene.p(0.15):
        term = {"topologyKey": ZONE, "labelSelector": copy.deepcopy(scene.pick(_SELECTORS))}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        pod["spec"].setdefault("affinity", {})["podAntiAffinity"] = required
    if scene.p(0.15):
        _volumes(scene, pod["spec"])
        pod["spec"]["volumes"] = pod["spec"]["volumes"][-1:]
    if scene.p(0.15):
        pod["spec"].pop("volumes", None)
    return pod


def _bound_pod(scene: Scene) -> Json:
    pod = _other_pod(scene)
    nodes = [node["metadata"]["name"] for node in scene.objects("nodes")] or ["gone"]
    if not pod["spec"].get("nodeName"):
        pod["spec"]["nodeName"] = scene.pick(nodes)
        pod.setdefault("status", {})["phase"] = "Running"
    return pod


def _remove(scene: Scene, pod: Json) -> Json:
    """Remove a pod from the existing pods and return it."""
    pods = scene.objects("pods")
    pods[:] = [each for each in pods if each is not pod]
    return pod


def added(scene: Scene) -> Json:
    """Add a bound pod."""
    return scene.add("Pod", _remove(scene, _bound_pod(scene)))


def deleted(scene: Scene) -> Json:
    """Delete a bound pod."""
    return scene.delete("Pod", "pods", _bound_pod(scene))


def updated(scene: Scene) -> Json:
    """Update a bound pod."""
    old = _bound_pod(scene)
    if scene.p(0.3):
        scene.pick([*_CHANGES, _gate])(scene, old)
    new = copy.deepcopy(old)
    new["spec"].pop("schedulingGates", None)
    for _ in range(scene.pick([0, 1, 1, 2])):
        scene.pick(_CHANGES)(scene, new)
    return scene.update("Pod", "pods", old, new)


def bound(scene: Scene) -> Json:
    """Bind a waiting pod."""
    new = _bound_pod(scene)
    _remove(scene, new)
    old = copy.deepcopy(new)
    del old["spec"]["nodeName"]
    return scene.update("Pod", "pods", old, new)


def other_waiting_pod(scene: Scene) -> Json:
    """Add, update or delete another waiting pod, with or without a nominated node."""
    pod = _remove(scene, _other_pod(scene))
    pod["spec"].pop("nodeName", None)
    pod["metadata"].update(name="unplaced", uid="uid-of-unplaced")
    pod["spec"]["schedulerName"] = scene.pick([scene.pod["spec"].get("schedulerName", "default-scheduler")] * 4 + ["x"])
    pod["spec"]["priority"] = scene.pick([-100, 0, 0, 10, 1000, 100000])
    status = pod["status"] = {"phase": "Pending"}
    if scene.p(0.7):
        status["nominatedNodeName"] = scene.pick(["n-1", "n-2"])
    how = scene.pick(["add", "delete", "delete", "update", "update"])
    if how == "add":
        return scene.add("Pod", pod)
    if how == "delete":
        return scene.delete("Pod", "pods", pod)
    new = copy.deepcopy(pod)
    if scene.p(0.6):
        name = scene.pick(["", "n-1", "n-2"])
        new["status"]["nominatedNodeName"] = name
        if not name:
            del new["status"]["nominatedNodeName"]
    else:
        scene.pick(_CHANGES)(scene, new)
    return scene.update("Pod", "pods", pod, new)


def update_waiting_pod(scene: Scene) -> Json | None:
    """Update the waiting pod."""
    old = scene.pod
    if old["spec"].get("nodeName"):
        return None
    for _ in range(scene.pick([0, 0, 1])):
        scene.pick(_CHANGES)(scene, old)
    new = copy.deepcopy(old)
    for _ in range(scene.pick([0, 1, 1, 1, 2])):
        scene.pick([*_CHANGES, *_OWN_CHANGES])(scene, new)
    return scene.update("Pod", "pod", old, new)


def surrounding(scene: Scene) -> Json:
    """Update a namespace or add a service, for which no plugin registers."""
    if scene.p(0.5):
        old = {"metadata": {"name": "elsewhere", "uid": "uid-of-elsewhere", "labels": {"team": "red"}}}
        new = copy.deepcopy(old)
        new["metadata"]["labels"] = {"team": "blue"}
        return scene.update("Namespace", "namespaces", old, new)
    made = {"metadata": {"name": "svc", "namespace": scene.namespace}, "spec": {"selector": {"app": "web"}}}
    return scene.add("Service", made)


def _relabel(scene: Scene, pod: Json) -> None:
    labels = pod["metadata"].setdefault("labels", {})
    how = scene.pick(["match", "match", "drop", "other"])
    if how == "match":
        labels.update(scene.matching_labels() or {"app": "web"})
    elif how == "drop" and labels:
        del labels[scene.pick(sorted(labels))]
    else:
        labels[scene.pick(["app", "tier", "version"])] = scene.pick(["web", "back", "v2"])


def _resize(scene: Scene, pod: Json) -> None:
    container = scene.pick(pod["spec"]["containers"])
    requests = container.setdefault("resources", {}).setdefault("requests", {})
    name = scene.pick(["cpu", "memory", *requests])
    how = scene.pick(["down", "down", "up", "rewrite", "finely", "drop"])
    if how == "down":
        requests[name] = scene.pick(["1m", "0", "1"])
    elif how == "up":
        requests[name] = scene.pick(["16", "64Gi"])
    elif how == "finely":
        requests[name] = scene.pick(["1500u", "1100u", "1400m", "1900m"])
    elif how == "drop":
        requests.pop(name, None)
    elif requests.get(name, "").isdigit():
        requests[name] += "000m"


def _grant(scene: Scene, pod: Json) -> None:
    """Set the resources that the kubelet reports during a resize."""
    container = scene.pick(pod["spec"]["containers"])
    granted = {"cpu": scene.pick(["10m", "4"]), "memory": scene.pick(["1Mi", "8Gi"])}
    container_status = {"name": container["name"], "allocatedResources": granted, "resources": {"requests": granted}}
    container_status |= {"image": "", "imageID": "", "ready": True, "restartCount": 0}
    pod.setdefault("status", {})["containerStatuses"] = [container_status]
    if scene.p(0.3):
        pending = {"type": "PodResizePending", "status": "True", "reason": scene.pick(["Infeasible", "Deferred"])}
        pod["status"]["conditions"] = [pending]


def _tolerate(scene: Scene, pod: Json) -> None:
    tolerations = pod["spec"].setdefault("tolerations", [])
    how = scene.pick(["add", "add", "add", "alter", "drop"])
    if how == "add":
        tolerations.append(dict(scene.pick(_TOLERATIONS)))
    elif tolerations and how == "alter":
        tolerations[-1] = dict(scene.pick(_TOLERATIONS))
    elif tolerations:
        tolerations.pop()


def _end(scene: Scene, pod: Json) -> None:
    pod["metadata"]["deletionTimestamp"] = "2026-03-25T00:00:00Z"
    pod["metadata"]["deletionGracePeriodSeconds"] = 30


def _annotate(scene: Scene, pod: Json) -> None:
    pod["metadata"].setdefault("annotations", {})["example.com/note"] = scene.pick(["a", "b"])


def _claim_status(scene: Scene, pod: Json) -> None:
    name = scene.pick(["made-a", "made-b"])
    pod.setdefault("status", {})["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": name}]


_CHANGES: list[Callable[[Scene, Json], None]] = [
    _relabel,
    _relabel,
    _resize,
    _resize,
    _grant,
    _tolerate,
    _end,
    _annotate,
    _claim_status,
]


def _gate(scene: Scene, pod: Json) -> None:
    """Add a scheduling gate; bound pods have none, but a hint must not fail."""
    _gates(scene, pod["spec"])


def _open_gates(scene: Scene, pod: Json) -> None:
    gates = pod["spec"].get("schedulingGates", [])
    pod["spec"]["schedulingGates"] = gates[1:] if scene.p(0.3) else []
    if not pod["spec"]["schedulingGates"]:
        del pod["spec"]["schedulingGates"]


def _nominate(scene: Scene, pod: Json) -> None:
    name = scene.pick(["", "n-1", "n-2"])
    pod.setdefault("status", {})["nominatedNodeName"] = name
    if not name:
        del pod["status"]["nominatedNodeName"]


def _need_other_features(scene: Scene, pod: Json) -> None:
    spec = pod["spec"]
    if spec.pop("hostUsers", None) is None:
        _features(scene, spec)


_OWN_CHANGES: list[Callable[[Scene, Json], None]] = [
    _tolerate,
    _open_gates,
    _open_gates,
    _nominate,
    _need_other_features,
]
