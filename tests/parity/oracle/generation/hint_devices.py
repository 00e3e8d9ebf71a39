"""Generation of changes of resource claims, device classes and slices, and of claims in a pod's status."""

from __future__ import annotations

import copy
from collections.abc import Callable

from tests.parity.oracle.generation.device_inventory import GPU
from tests.parity.oracle.generation.hint_scene import Scene
from tests.parity.oracle.generation.world import Json

_CLASSES = ["gpu", "nic", "picked", "anything", "made"]
_EXTENDED = ["example.com/accel", "example.com/gpu", "example.com/other"]
_IMPLICIT = "deviceclass.resource.kubernetes.io/"
_TIMES = ["2026-03-21T00:00:00Z", "2026-03-22T00:00:00Z"]
_FAMILIES_WITHOUT_DEVICES = 0.25
"""Probability that a pod without claims gets one, because other families have enough other changes."""


def claim(scene: Scene) -> Json | None:
    """Change a claim, often a claim of the waiting pod; None if the pod has no claims."""
    names = _claimed_names(scene)
    if not names:
        if not scene.p(_FAMILIES_WITHOUT_DEVICES):
            return None
        names = [_claim_for(scene)]
    field = "resourceclaims"
    name = scene.pick(names) if scene.p(0.7) else "claim-of-others"
    known = next((each for each in scene.objects(field) if each["metadata"]["name"] == name), None)
    made = known or _new_claim(scene, name)
    if known is None and scene.p(0.3):
        _own(scene, made)
    if scene.p(0.5):
        _allocate(scene, made)
        for change in (_reserve, _report):
            if scene.p(0.6):
                change(scene, made)
    if scene.p(0.5):
        _make_all_exist(scene, [each for each in names if each != name])
    return scene.change("ResourceClaim", field, made, _alter_claim, existing=0.25)


def device_class(scene: Scene) -> Json | None:
    """Change a device class, often one for an extended resource of the pod; None if the pod needs no devices."""
    if not _claimed_names(scene) and not scene.p(_FAMILIES_WITHOUT_DEVICES):
        return None
    name = scene.pick(_CLASSES)
    if scene.p(0.6):
        requested = scene.pick([_EXTENDED[0], _EXTENDED[0], *_EXTENDED, _IMPLICIT + name, _IMPLICIT + name])
        resources = scene.pod["spec"]["containers"][0].setdefault("resources", {})
        for part in ("requests", "limits"):
            resources.setdefault(part, {})[requested] = "1"
    known = next((each for each in scene.objects("deviceclasses") if each["metadata"]["name"] == name), None)
    made = known or {"metadata": {"name": name, "uid": f"uid-of-{name}"}, "spec": {}}
    if scene.p(0.5):
        _alter_class(scene, made)
    return scene.change("DeviceClass", "deviceclasses", made, _alter_class, existing=0.1)


def resource_slice(scene: Scene) -> Json | None:
    """Change a ResourceSlice; None if the pod needs no devices."""
    if not _claimed_names(scene) and not scene.p(_FAMILIES_WITHOUT_DEVICES):
        return None
    nodes = [node["metadata"]["name"] for node in scene.objects("nodes")] or ["gone"]
    made = {
        "metadata": {"name": "slice-made", "uid": "uid-of-slice-made"},
        "spec": {
            "driver": GPU,
            "pool": {"name": "made", "generation": 1, "resourceSliceCount": 1},
            "nodeName": scene.pick(nodes),
            "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
        },
    }
    return scene.change("ResourceSlice", "resourceslices", made, _alter_slice, existing=0.4)


def claim_status(scene: Scene) -> Json | None:
    """Update the claims in the waiting pod's status."""
    old = scene.pod
    if old["spec"].get("nodeName"):
        return None
    if not old["spec"].get("resourceClaims"):
        if not scene.p(_FAMILIES_WITHOUT_DEVICES):
            return None
        _claim_for(scene)
    for _ in range(scene.pick([0, 0, 1])):
        _name_claim(scene, old)
    new = copy.deepcopy(old)
    for _ in range(scene.pick([0, 1, 1, 2])):
        _name_claim(scene, new)
    if scene.p(0.5):
        _make_all_exist(scene, _claimed_names(scene, new))
    return scene.update("Pod", "pod", old, new)


def _claimed_names(scene: Scene, pod: Json | None = None) -> list[str]:
    pod = pod or scene.pod
    statuses = pod.get("status", {}).get("resourceClaimStatuses", [])
    made = {each["name"]: each.get("resourceClaimName") for each in statuses}
    names = [each.get("resourceClaimName") or made.get(each["name"]) for each in pod["spec"].get("resourceClaims", [])]
    return [name for name in names if name]


def _claim_for(scene: Scene) -> str:
    """Add a claim to the pod, which may not exist."""
    pod = scene.pod
    name = "claim-of-the-pod"
    if scene.p(0.5):
        source = {"resourceClaimTemplateName": "template"}
        pod.setdefault("status", {})["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": name}]
    else:
        source = {"resourceClaimName": name}
    pod["spec"]["resourceClaims"] = [{"name": "gpu", **source}]
    if scene.p(0.5):
        made = _new_claim(scene, name)
        _own(scene, made)
        scene.objects("resourceclaims").append(made)
    return name


def _new_claim(scene: Scene, name: str) -> Json:
    request = {"name": "r0", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
    return {
        "metadata": {"name": name, "namespace": scene.namespace, "uid": f"uid-of-{name}"},
        "spec": {"devices": {"requests": [request]}},
    }


def _make_all_exist(scene: Scene, names: list[str]) -> None:
    """Add the missing claims of the pod, so that only the change matters."""
    known = {each["metadata"]["name"] for each in scene.objects("resourceclaims")}
    for name in names:
        if name not in known:
            made = _new_claim(scene, name)
            _own(scene, made)
            scene.objects("resourceclaims").append(made)


def _own(scene: Scene, stored: Json) -> None:
    meta = scene.pod["metadata"]
    uid = scene.pick([meta["uid"], meta["uid"], meta["uid"], "uid-of-another"])
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": uid}
    if scene.p(0.85):
        owner["controller"] = True
    stored["metadata"]["ownerReferences"] = [owner]


def _alter_claim(scene: Scene, stored: Json) -> None:
    scene.pick(_CLAIM_CHANGES)(scene, stored)


def _allocate(scene: Scene, stored: Json) -> None:
    result: Json = {"request": "r0", "driver": GPU, "pool": "made", "device": scene.pick(["gpu-0", "gpu-1"])}
    if scene.p(0.4):
        amount = scene.pick(["1Gi", "1024Mi", "2Gi"])
        result |= {"shareID": "00000000-0000-4000-8000-000000000001", "consumedCapacity": {"memory": amount}}
    allocation: Json = {"devices": {"results": [result]}}
    if scene.p(0.5):
        allocation["allocationTimestamp"] = scene.pick(_TIMES)
    stored.setdefault("status", {})["allocation"] = allocation


def _deallocate(scene: Scene, stored: Json) -> None:
    stored["status"] = {}


def _reserve(scene: Scene, stored: Json) -> None:
    meta = scene.pod["metadata"]
    consumer = {"resource": "pods", "name": meta["name"], "uid": scene.pick([meta["uid"], "uid-of-another"])}
    stored.setdefault("status", {})["reservedFor"] = [consumer]


def _end_reservation(scene: Scene, stored: Json) -> None:
    stored.get("status", {}).pop("reservedFor", None)


def _report(scene: Scene, stored: Json) -> None:
    """Set the device status that a driver reports."""
    condition: Json = {
        "type": "Ready",
        "status": scene.pick(["True", "False"]),
        "reason": scene.pick(["Driver", "Checked"]),
        "message": scene.pick(["", "checked"]),
        "lastTransitionTime": scene.pick(_TIMES),
    }
    if scene.p(0.3):
        condition["observedGeneration"] = scene.pick([1, 2])
    device: Json = {"driver": GPU, "pool": "made", "device": "gpu-0"}
    if scene.p(0.8):
        device["conditions"] = [condition]
    if scene.p(0.3):
        device["data"] = {"level": scene.pick([1, 2])}
    if scene.p(0.3):
        device["networkData"] = {"interfaceName": scene.pick(["eth1", "eth2"])}
    stored.setdefault("status", {})["devices"] = [device]


def _transition(scene: Scene, stored: Json) -> None:
    """Change one field of the status of the first device."""
    devices = stored.get("status", {}).get("devices")
    if not devices:
        _report(scene, stored)
        return
    device = devices[0]
    how = scene.pick(["time", "generation", "data", "network"])
    conditions = device.get("conditions")
    if how == "data":
        device["data"] = {"level": scene.pick([3, 4])}
    elif how == "network":
        device["networkData"] = {"ips": [scene.pick(["10.0.0.1/24", "10.0.0.2/24"])]}
    elif conditions:
        key = "lastTransitionTime" if how == "time" else "observedGeneration"
        conditions[0][key] = scene.pick(_TIMES) if how == "time" else scene.pick([3, 4])


def _rewrite(scene: Scene, stored: Json) -> None:
    """Write a quantity of the allocation in another notation or with another amount."""
    allocation = stored.get("status", {}).get("allocation")
    for result in allocation["devices"].get("results", []) if allocation else []:
        for name in result.get("consumedCapacity", {}):
            result["consumedCapacity"][name] = scene.pick(["1Gi", "1024Mi", "1048576Ki", "3Gi"])


def _end(scene: Scene, stored: Json) -> None:
    stored["metadata"] |= {"deletionTimestamp": "2026-03-25T00:00:00Z", "finalizers": ["example.com/keep"]}


def _recreate(scene: Scene, stored: Json) -> None:
    """Give the claim another UID, because a broken watch reports a deletion and a creation as an update."""
    stored["metadata"]["uid"] = scene.pick(["uid-of-a-new-claim", "uid-of-a-newer-claim"])
    stored.pop("status", None)


def _annotate(scene: Scene, stored: Json) -> None:
    stored["metadata"].setdefault("annotations", {})["example.com/note"] = scene.pick(["a", "b"])


_CLAIM_CHANGES: list[Callable[[Scene, Json], None]] = [
    *[_allocate] * 3,
    *[_deallocate] * 4,
    *[_reserve] * 2,
    _end_reservation,
    *[_report] * 2,
    *[_transition] * 2,
    *[_rewrite] * 2,
    _end,
    _own,
    _recreate,
    _annotate,
]


def _alter_class(scene: Scene, stored: Json) -> None:
    how = scene.pick(["extended", "extended", "extended", "none", "selector", "config", "annotation"])
    spec = stored["spec"]
    if how == "extended":
        spec["extendedResourceName"] = scene.pick([_EXTENDED[0], *_EXTENDED])
    elif how == "none":
        spec.pop("extendedResourceName", None)
    elif how == "selector":
        spec["selectors"] = [{"cel": {"expression": scene.pick(["true", "device.driver == 'x'"])}}]
    elif how == "config":
        parameters = {"level": scene.pick([1, 2])}
        spec["config"] = [{"opaque": {"driver": GPU, "parameters": parameters}}]
    else:
        _annotate(scene, stored)


def _alter_slice(scene: Scene, stored: Json) -> None:
    how = scene.pick(["fewer", "more", "generation", "taint", "annotation"])
    spec = stored["spec"]
    devices = spec.get("devices", [])
    if how == "generation":
        spec["pool"]["generation"] = scene.pick([2, 3])
    elif how == "fewer" and devices:
        devices.pop()
    elif how == "more" and devices:
        devices.append({"name": scene.pick(["extra-0", "extra-1"])})
    elif how == "taint" and devices:
        devices[0]["taints"] = [{"key": "broken", "effect": "NoSchedule", "timeAdded": scene.pick(_TIMES)}]
    else:
        _annotate(scene, stored)


def _name_claim(scene: Scene, pod: Json) -> None:
    status = pod.setdefault("status", {})
    names = [each["name"] for each in pod["spec"]["resourceClaims"]]
    statuses = status.setdefault("resourceClaimStatuses", [])
    how = scene.pick(["name", "name", "name", "null", "drop", "extended"])
    if how == "extended":
        mapping = {"containerName": "main", "resourceName": _EXTENDED[0], "requestName": "container-0-request-0"}
        made = scene.pick(["extended-a", "extended-b"])
        status["extendedResourceClaimStatus"] = {"resourceClaimName": made, "requestMappings": [mapping]}
        return
    reference = scene.pick(names)
    statuses[:] = [each for each in statuses if each["name"] != reference]
    if how == "drop":
        return
    entry = {"name": reference}
    if how == "name":
        known = [each["metadata"]["name"] for each in scene.objects("resourceclaims")]
        entry["resourceClaimName"] = scene.pick(known) if known and scene.p(0.7) else "claim-of-the-pod"
    statuses.append(entry)
    if scene.p(0.3):
        scene.rng.shuffle(statuses)
